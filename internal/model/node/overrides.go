package node

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Overrides are values from the annotations of one workload. Each replaces a
// value of the strategy of the workload's class. An absent value replaces
// nothing, so the zero Overrides changes nothing.
type Overrides struct {
	Burst  BurstOverride  `json:"burst,omitzero"`
	Memory MemoryOverride `json:"memory,omitzero"`
	// Identity is the priority of the workload for a vendor's kernel and for the
	// BE scheduler.
	Identity Maybe[Identity] `json:"identity,omitzero"`
	// IO holds limits and weights of the workload on block devices. Those of
	// its class apply, too.
	IO    []BlockIO     `json:"io,omitempty"`
	Cache CacheOverride `json:"cache,omitzero"`
	CPUs  CPUOverride   `json:"cpus,omitzero"`
	// EvictionExemptFrom lists the causes for which Tenon must not evict the
	// workload, each one of evict.Causes.
	EvictionExemptFrom []string `json:"eviction_exempt_from,omitempty"`
}

// Equal reports whether a and b set the same values.
func (a Overrides) Equal(b Overrides) bool {
	return a.Burst == b.Burst && a.Memory == b.Memory && a.Identity == b.Identity && slices.Equal(a.IO, b.IO) &&
		a.Cache == b.Cache && a.CPUs.Equal(b.CPUs) && slices.Equal(a.EvictionExemptFrom, b.EvictionExemptFrom)
}

// BurstOverride is the cpuBurst strategy of one workload.
type BurstOverride struct {
	// Policy is BurstNone or a burst.Policy. If it is empty, the policy of
	// the class applies.
	Policy        string              `json:"policy,omitempty"`
	CPUPercent    Maybe[unit.Percent] `json:"cpu_percent,omitzero"`
	QuotaPercent  Maybe[unit.Percent] `json:"quota_percent,omitzero"`
	PeriodSeconds Maybe[int64]        `json:"period_seconds,omitzero"`
}

// BurstNone disables bursts, even if the class enables them.
const BurstNone = "none"

// MemoryOverride is the memoryQOS strategy of one workload.
type MemoryOverride struct {
	// OwnOnly means that the values of the class do not apply. A percentage
	// that is absent here is then 0.
	OwnOnly bool `json:"own,omitempty"`
	// Enabled applies the values of the class even if the class disables them.
	Enabled           bool                `json:"enabled,omitempty"`
	MinPercent        Maybe[unit.Percent] `json:"min_percent,omitzero"`
	LowPercent        Maybe[unit.Percent] `json:"low_percent,omitzero"`
	ThrottlingPercent Maybe[unit.Percent] `json:"throttling_percent,omitzero"`
}

// BlockIO holds the I/O limits and the weight of a class or workload: on one
// block device, or on all disks of a volume group together.
type BlockIO struct {
	// Name is a device ("vda", "/dev/vg0/data", "254:0") or a volume group.
	Name        string `json:"name"`
	VolumeGroup bool   `json:"volume_group,omitempty"`
	// The limits per second, in bytes and in operations. 0 means no limit.
	ReadBPS   int64 `json:"readBPS,omitempty"`
	WriteBPS  int64 `json:"writeBPS,omitempty"`
	ReadIOPS  int64 `json:"readIOPS,omitempty"`
	WriteIOPS int64 `json:"writeIOPS,omitempty"`
	// WeightPercent is a percentage of the weight that the cgroup had before
	// Tenon. 0 means that Tenon does not change the weight.
	WeightPercent unit.Percent `json:"ioWeightPercent,omitempty"`
	// Latency is the target latency. The kernel slows other work to meet it. 0 means no target.
	Latency time.Duration `json:"latency_ns,omitempty"`
}

// CacheOverride is the part of each L3 cache and of the memory bandwidth that
// one workload may use. If a value is absent, the value of the class applies.
type CacheOverride struct {
	// ControlGroup is the name of the workload's own control group. It is
	// ControlGroupPrefix with a suffix that no other workload has.
	ControlGroup string              `json:"resctrl,omitempty"`
	Start        Maybe[unit.Percent] `json:"start_percent,omitzero"`
	End          Maybe[unit.Percent] `json:"end_percent,omitzero"`
	Bandwidth    Maybe[unit.Percent] `json:"bandwidth_percent,omitzero"`
}
