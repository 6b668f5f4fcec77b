package node

import "slices"

// A Feature is a feature of kernel or hardware that Tenon can use.
type Feature string

// An Answer says whether the node can do something. There are three answers:
// yes; no, with the reason; could not tell, with the reason.
type Answer struct {
	Verdict Verdict `json:"verdict"`
	// Why is the evidence: the file, system call or error that decided.
	Why string `json:"why,omitempty"`
}

// Verdict is the word of an Answer.
type Verdict string

// The three verdicts.
const (
	Yes     Verdict = "yes"
	No      Verdict = "no"
	Unknown Verdict = "unknown"
)

// Capabilities holds the answers by mechanism.
type Capabilities map[Feature]Answer

// Can reports whether the answer for m is a plain yes.
func (c Capabilities) Can(m Feature) bool { return c[m].Verdict == Yes }

// A VendorMark is a vendor's kernel on which cgroups are marked: those of
// best-effort work yield to all others.
type VendorMark struct {
	Can     Feature // whether a kernel has it; named as the file of a cgroup
	Idles   bool    // the mark of best-effort work makes the group idle, too
	Instead string  // what Tenon uses on kernels without it
}

// VendorMarks is the table of these kernels, a row for each.
var VendorMarks = []VendorMark{
	{FeatureGroupIdentity, false, "sched_ext or core scheduling, and cpu.idle"},
	{FeatureGroupPriority, true, "sched_ext or core scheduling, and cpu.idle"},
	{FeatureQOSLevel, false, "sched_ext or core scheduling, and cpu.idle"},
}

// CanMark reports whether the kernel is one of VendorMarks.
func (c Capabilities) CanMark() bool {
	return slices.ContainsFunc(VendorMarks, func(v VendorMark) bool { return c.Can(v.Can) })
}

// The mechanisms, named as the kernel names the thing that decides.
const (
	FeatureCPUIdle        Feature = "cpu.idle"
	FeatureCPUWeight      Feature = "cpu.weight"
	FeatureCPUMax         Feature = "cpu.max"
	FeatureCPUBurst       Feature = "cpu.max.burst"
	FeatureCPUSets        Feature = "cpuset"
	FeatureCPUPartition   Feature = "cpuset.cpus.partition"
	FeatureMemoryLimit    Feature = "memory.max"
	FeatureMemoryProtect  Feature = "memory.low"
	FeaturePSINode        Feature = "psi"
	FeaturePSICgroup      Feature = "psi.cgroup"
	FeatureEEVDFSlice     Feature = "eevdf.slice"
	FeatureCoreSched      Feature = "core_sched"
	FeatureSchedExt       Feature = "sched_ext"
	FeatureSchedIdle      Feature = "SCHED_IDLE"
	FeatureBPF            Feature = "bpf.tracing"
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
)
