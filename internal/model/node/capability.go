package node

import "slices"

// A Feature is a feature of the kernel or the hardware that Tenon can use.
type Feature string

// An Answer says whether the node has a feature: yes, no, or not known.
type Answer struct {
	Verdict Verdict `json:"verdict"`
	// Why is the evidence for the answer: a file, a system call or an error.
	Why string `json:"why,omitempty"`
}

// Verdict is the one-word form of an Answer.
type Verdict string

// The values of Verdict.
const (
	Yes     Verdict = "yes"
	No      Verdict = "no"
	Unknown Verdict = "unknown"
)

// Capabilities holds the answer for each feature.
type Capabilities map[Feature]Answer

// Has reports whether the node certainly has the feature m.
func (c Capabilities) Has(m Feature) bool { return c[m].Verdict == Yes }

// A VendorMark describes a vendor's kernel that can mark a cgroup. On such a
// kernel, BE cgroups with the mark give way to all other cgroups.
type VendorMark struct {
	Can     Feature // named after the cgroup file that takes the mark
	Idles   bool    // the BE mark also makes the cgroup idle
	Instead string  // what Tenon uses on kernels without it
}

// VendorMarks has one row for each kernel that can mark cgroups.
var VendorMarks = []VendorMark{
	{FeatureGroupIdentity, false, "sched_ext or core scheduling, and cpu.idle"},
	{FeatureGroupPriority, true, "sched_ext or core scheduling, and cpu.idle"},
	{FeatureQOSLevel, false, "sched_ext or core scheduling, and cpu.idle"},
}

// CanMark reports whether the node's kernel is one of VendorMarks.
func (c Capabilities) CanMark() bool {
	return slices.ContainsFunc(VendorMarks, func(v VendorMark) bool { return c.Has(v.Can) })
}

// The features. Each has the name of the kernel interface that provides it.
const (
	FeatureCPUIdle        Feature = "cpu.idle"
	FeatureCPUWeight      Feature = "cpu.weight"
	FeatureCPUMax         Feature = "cpu.max"
	FeatureCPUBurst       Feature = "cpu.max.burst"
	FeatureCPUSets        Feature = "cpuset"
	FeatureCPUPartition   Feature = "cpuset.cpus.partition"
	FeatureMemoryLimit    Feature = "memory.max"
	FeatureMemoryProtect  Feature = "memory.low"
	FeatureMemoryReclaim  Feature = "memory.reclaim"
	FeaturePSINode        Feature = "psi"
	FeaturePSICgroup      Feature = "psi.cgroup"
	FeatureEEVDFSlice     Feature = "eevdf.slice"
	FeatureSchedIdle      Feature = "SCHED_IDLE"
	FeatureSchedFIFO      Feature = "SCHED_FIFO"
	FeatureBPF            Feature = "bpf.tracing"
	FeatureBPFTCP         Feature = "bpf.tcp"
	FeaturePerfCounters   Feature = "perf.hardware"
	FeatureResctrlL3      Feature = "resctrl.L3"
	FeatureResctrlMB      Feature = "resctrl.MB"
	FeatureGroupIdentity  Feature = "cpu.bvt_warp_ns"
	FeatureGroupPriority  Feature = "cpu.priority"
	FeatureQOSLevel       Feature = "cpu.qos_level"
	FeatureSchedStat      Feature = "schedstat"
	FeatureCgroupFreezer  Feature = "cgroup.freeze"
	FeatureHardwareSMT    Feature = "smt"
	FeatureIOMax          Feature = "io.max"
	FeatureIOWeight       Feature = "io.weight"
	FeatureBFQWeight      Feature = "io.bfq.weight"
	FeatureIOLatency      Feature = "io.latency"
	FeatureCgroupDelegate Feature = "cgroup.delegation"
	FeatureCgroupNotes    Feature = "cgroup.notes"
)
