package config

import (
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Strategies contains the configured strategies of one node. The keys, their meanings and
// their ranges are those of the ConfigMap of Koordinator and ACK (slo-controller-config,
// ack-slo-config), so that the file and the ConfigMap share this struct. An unset key is
// absent; default.go has its default. docs/configuration.md describes each key.
type Strategies struct {
	Threshold  Threshold  `json:"resource-threshold-config,omitzero" section:"nodeStrategies"`
	QOS        QOS        `json:"resource-qos-config,omitzero" section:"nodeStrategies"`
	Burst      Burst      `json:"cpu-burst-config,omitzero" section:"nodeStrategies"`
	Colocation Colocation `json:"colocation-config,omitzero" section:"nodeConfigs"`
}

// Threshold is resource-threshold-config: BE must give way if the resource usage of the node is
// above a threshold. Percentages are of the node's capacity. But if the name of the key
// contains Allocatable, they are of the node's allocatable resources.
type Threshold struct {
	Enable node.Maybe[bool] `json:"enable,omitzero"`

	CPUSuppressThresholdPercent node.Maybe[unit.Percent] `json:"cpuSuppressThresholdPercent,omitzero" range:"0..100"`
	CPUSuppressMinPercent       node.Maybe[unit.Percent] `json:"cpuSuppressMinPercent,omitzero" range:"0..100"`
	CPUSuppressPolicy           node.Maybe[string]       `json:"cpuSuppressPolicy,omitzero" oneof:"cpuset cfsQuota" taken:"*"`
	// CPUSuppressLendLSR exists only in Tenon.
	CPUSuppressLendLSR node.Maybe[bool] `json:"cpuSuppressLendLSR,omitzero"`

	MemoryEvictThresholdPercent            node.Maybe[unit.Percent] `json:"memoryEvictThresholdPercent,omitzero" range:"0..100"`
	MemoryEvictLowerPercent                node.Maybe[unit.Percent] `json:"memoryEvictLowerPercent,omitzero" range:"0..100"`
	MemoryAllocatableEvictThresholdPercent node.Maybe[unit.Percent] `json:"memoryAllocatableEvictThresholdPercent,omitzero" range:"0.." later:""`
	MemoryAllocatableEvictLowerPercent     node.Maybe[unit.Percent] `json:"memoryAllocatableEvictLowerPercent,omitzero" range:"0.." later:""`

	CPUEvictBESatisfactionLowerPercent  node.Maybe[unit.Percent] `json:"cpuEvictBESatisfactionLowerPercent,omitzero" range:"1..60" taken:"0..100"`
	CPUEvictBESatisfactionUpperPercent  node.Maybe[unit.Percent] `json:"cpuEvictBESatisfactionUpperPercent,omitzero" range:"1..99" taken:"0..100"`
	CPUEvictBEUsageThresholdPercent     node.Maybe[unit.Percent] `json:"cpuEvictBEUsageThresholdPercent,omitzero" range:"0..100"`
	CPUEvictTimeWindowSeconds           node.Maybe[int64]        `json:"cpuEvictTimeWindowSeconds,omitzero" range:"1.."`
	CPUEvictPolicy                      node.Maybe[string]       `json:"cpuEvictPolicy,omitzero" oneof:"evictByRealLimit evictByAllocatable" taken:"*"`
	CPUEvictThresholdPercent            node.Maybe[unit.Percent] `json:"cpuEvictThresholdPercent,omitzero" range:"0..100"`
	CPUEvictLowerPercent                node.Maybe[unit.Percent] `json:"cpuEvictLowerPercent,omitzero" range:"0..100"`
	CPUAllocatableEvictThresholdPercent node.Maybe[unit.Percent] `json:"cpuAllocatableEvictThresholdPercent,omitzero" range:"0.." later:""`
	CPUAllocatableEvictLowerPercent     node.Maybe[unit.Percent] `json:"cpuAllocatableEvictLowerPercent,omitzero" range:"0.." later:""`

	// EvictGracePeriodSeconds exists only in Tenon.
	EvictGracePeriodSeconds node.Maybe[int64] `json:"evictGracePeriodSeconds,omitzero" range:"0..3600"`
	// EvictUnlabelled is a key that only Tenon has.
	EvictUnlabelled node.Maybe[bool] `json:"evictUnlabelled,omitzero"`
	// Pods with a priority above these values are not evicted.
	EvictEnabledPriorityThreshold     node.Maybe[int64] `json:"evictEnabledPriorityThreshold,omitzero" range:"-2147483648..2147483647"`
	AllocatableEvictPriorityThreshold node.Maybe[int64] `json:"allocatableEvictPriorityThreshold,omitzero" range:"-2147483648..7999" later:""`
}

// QOS is resource-qos-config, which isolates each class from the others.
type QOS struct {
	Policies    Policies `json:"policies,omitzero"`
	LSRClass    Class    `json:"lsrClass,omitzero"`
	LSClass     Class    `json:"lsClass,omitzero"`
	BEClass     Class    `json:"beClass,omitzero"`
	SystemClass Class    `json:"systemClass,omitzero"`
	// CgroupRoot contains the settings that exist once per node, such as those of
	// block devices.
	CgroupRoot Class `json:"cgroupRoot,omitzero" later:""`
}

// classOf is one part of QOS, with its key and its classes.
type classOf struct {
	key string
	Class
	names []node.Class
}

// classes returns the parts of q, each with its classes.
func (q QOS) classes() []classOf {
	return []classOf{
		{"lsrClass", q.LSRClass, []node.Class{node.LSE, node.LSR}},
		{"lsClass", q.LSClass, []node.Class{node.LS}},
		{"beClass", q.BEClass, []node.Class{node.BE}},
		{"systemClass", q.SystemClass, []node.Class{node.System}},
	}
}

// pointers returns pointers to the parts of q, in the order of classes.
func (q *QOS) pointers() []*Class {
	return []*Class{&q.LSRClass, &q.LSClass, &q.BEClass, &q.SystemClass}
}

// Policies selects mechanisms for parts of QOS. By default, trials on the node
// select the CPU isolation (see measured order in docs/glossary.md).
type Policies struct {
	CPUPolicy    node.Maybe[string] `json:"cpuPolicy,omitzero" oneof:"groupIdentity coreSched"`
	NetQOSPolicy node.Maybe[string] `json:"netQOSPolicy,omitzero" oneof:"tc terway-qos" later:""`
	// Only Tenon has the following keys.
	CPUIsolation     node.Maybe[string] `json:"cpuIsolation,omitzero" oneof:"auto measured strongest MECHANISM"`
	Trials           node.Maybe[bool]   `json:"cpuIsolationTrials,omitzero"`
	HoldMicroseconds node.Maybe[int64]  `json:"cpuIsolationHoldMicroseconds,omitzero" range:"0..10000"`
	HeadroomCores    node.Maybe[int64]  `json:"cpuIsolationHeadroomCores,omitzero" range:"0..64"`
	LongSlices       node.Maybe[bool]   `json:"cpuIsolationLongSlices,omitzero"`
	LimitSeats       node.Maybe[bool]   `json:"cpuLimitSeats,omitzero"`
}

// Class is the isolation of the workloads of one class. Each part has a key
// Enable, and has an effect only if this key is true.
type Class struct {
	CPU     CPUQOS     `json:"cpuQOS,omitzero"`
	Memory  MemoryQOS  `json:"memoryQOS,omitzero"`
	Resctrl ResctrlQOS `json:"resctrlQOS,omitzero"`
	BlkIO   BlkIOQOS   `json:"blkioQOS,omitzero"`
	Network NetworkQOS `json:"networkQOS,omitzero"`
}

// CPUQOS configures which classes get the CPU first.
type CPUQOS struct {
	Enable        node.Maybe[bool]  `json:"enable,omitzero"`
	GroupIdentity node.Maybe[int64] `json:"groupIdentity,omitzero" range:"-1..2"`
	SchedIdle     node.Maybe[int64] `json:"schedIdle,omitzero" range:"0..1"`
	CoreExpeller  node.Maybe[bool]  `json:"coreExpeller,omitzero"`
}

// MemoryQOS configures how much memory is protected, and the usage at which memory is reclaimed.
// WmarkRatio and the keys after it are for Anolis OS kernels.
type MemoryQOS struct {
	Enable                node.Maybe[bool]         `json:"enable,omitzero"`
	MinLimitPercent       node.Maybe[unit.Percent] `json:"minLimitPercent,omitzero" range:"0..100"`
	LowLimitPercent       node.Maybe[unit.Percent] `json:"lowLimitPercent,omitzero" range:"0..100"`
	ThrottlingPercent     node.Maybe[unit.Percent] `json:"throttlingPercent,omitzero" range:"0..100"`
	WmarkRatio            node.Maybe[unit.Percent] `json:"wmarkRatio,omitzero" range:"0..100" later:"0"`
	WmarkScalePermill     node.Maybe[int64]        `json:"wmarkScalePermill,omitzero" range:"1..1000" later:"50"`
	WmarkMinAdj           node.Maybe[int64]        `json:"wmarkMinAdj,omitzero" range:"-25..50" later:"0"`
	PriorityEnable        node.Maybe[int64]        `json:"priorityEnable,omitzero" range:"0..1" later:"0"`
	Priority              node.Maybe[int64]        `json:"priority,omitzero" range:"0..12" later:"0"`
	OomKillGroup          node.Maybe[int64]        `json:"oomKillGroup,omitzero" range:"0..1" later:"0"`
	PageCacheEnable       node.Maybe[bool]         `json:"pageCacheEnable,omitzero" later:"false"`
	PageCacheLimitPercent node.Maybe[unit.Percent] `json:"pageCacheLimitPercent,omitzero" range:"0..100" later:""`
	PageCacheLimitSize    node.Maybe[unit.Bytes]   `json:"pageCacheLimitSize,omitzero" later:""`
	PageCacheReclaimSync  node.Maybe[bool]         `json:"pageCacheReclaimSync,omitzero" later:"false"`
}

// ResctrlQOS configures how much L3 cache and memory bandwidth a class may use.
type ResctrlQOS struct {
	Enable               node.Maybe[bool]         `json:"enable,omitzero"`
	CATRangeStartPercent node.Maybe[unit.Percent] `json:"catRangeStartPercent,omitzero" range:"0..100"`
	CATRangeEndPercent   node.Maybe[unit.Percent] `json:"catRangeEndPercent,omitzero" range:"0..100"`
	MBAPercent           node.Maybe[unit.Percent] `json:"mbaPercent,omitzero" range:"1..100" taken:"0..100"`
}

// BlkIOQOS configures how a class uses block devices.
type BlkIOQOS struct {
	Enable node.Maybe[bool] `json:"enable,omitzero"`
	Blocks []Block          `json:"blocks,omitempty"`
}

// Block is a block device, a volume group or a pod's volume.
type Block struct {
	Name node.Maybe[string] `json:"name,omitzero"`
	Type node.Maybe[string] `json:"type,omitzero" oneof:"device volumegroup podvolume"`
	IO   IO                 `json:"ioCfg,omitzero"`
}

// IO contains the settings of one Block for all work of a class together: limits, weight and
// latency targets. Rates are per second, and 0 means no limit. Latencies are in microseconds.
type IO struct {
	ReadIOPS            node.Maybe[int64]        `json:"readIOPS,omitzero" range:"0.."`
	WriteIOPS           node.Maybe[int64]        `json:"writeIOPS,omitzero" range:"0.."`
	ReadBPS             node.Maybe[int64]        `json:"readBPS,omitzero" range:"0.."`
	WriteBPS            node.Maybe[int64]        `json:"writeBPS,omitzero" range:"0.."`
	WeightPercent       node.Maybe[unit.Percent] `json:"ioWeightPercent,omitzero" range:"1..100" taken:"0..100"`
	ReadLatency         node.Maybe[int64]        `json:"readLatency,omitzero" range:"1.." taken:"0.."`
	WriteLatency        node.Maybe[int64]        `json:"writeLatency,omitzero" range:"1.." taken:"0.."`
	ReadLatencyPercent  node.Maybe[unit.Percent] `json:"readLatencyPercent,omitzero" range:"0..100" later:""`
	WriteLatencyPercent node.Maybe[unit.Percent] `json:"writeLatencyPercent,omitzero" range:"0..100" later:""`
	EnableUserModel     node.Maybe[bool]         `json:"enableUserModel,omitzero" later:"false"`
	ModelReadBPS        node.Maybe[int64]        `json:"modelReadBPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelWriteBPS       node.Maybe[int64]        `json:"modelWriteBPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelReadSeqIOPS    node.Maybe[int64]        `json:"modelReadSeqIOPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelWriteSeqIOPS   node.Maybe[int64]        `json:"modelWriteSeqIOPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelReadRandIOPS   node.Maybe[int64]        `json:"modelReadRandIOPS,omitzero" range:"1.." taken:"0.." later:""`
	ModelWriteRandIOPS  node.Maybe[int64]        `json:"modelWriteRandIOPS,omitzero" range:"1.." taken:"0.." later:""`
}

// NetworkQOS configures the part of the network bandwidth that a class may use.
type NetworkQOS struct {
	Enable         node.Maybe[bool]      `json:"enable,omitzero" later:"false"`
	IngressRequest node.Maybe[Bandwidth] `json:"ingressRequest,omitzero" later:""`
	IngressLimit   node.Maybe[Bandwidth] `json:"ingressLimit,omitzero" later:""`
	EgressRequest  node.Maybe[Bandwidth] `json:"egressRequest,omitzero" later:""`
	EgressLimit    node.Maybe[Bandwidth] `json:"egressLimit,omitzero" later:""`
}

// Burst is cpu-burst-config: how much CPU time an LS workload may save and borrow for its bursts.
type Burst struct {
	Policy                     node.Maybe[string]       `json:"policy,omitzero" oneof:"none cpuBurstOnly cfsQuotaBurstOnly auto"`
	CPUBurstPercent            node.Maybe[unit.Percent] `json:"cpuBurstPercent,omitzero" range:"1..10000"`
	CFSQuotaBurstPercent       node.Maybe[unit.Percent] `json:"cfsQuotaBurstPercent,omitzero" range:"100.." likely:"100..10000"`
	CFSQuotaBurstPeriodSeconds node.Maybe[int64]        `json:"cfsQuotaBurstPeriodSeconds,omitzero" range:"-1.."`
	SharePoolThresholdPercent  node.Maybe[unit.Percent] `json:"sharePoolThresholdPercent,omitzero" range:"0..100"`
}
