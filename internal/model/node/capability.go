package node

import "slices"

// A Mechanism is a feature of kernel or hardware that Tenon can use.
type Mechanism string

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
type Capabilities map[Mechanism]Answer

// Can reports whether the answer for m is a plain yes.
func (c Capabilities) Can(m Mechanism) bool { return c[m].Verdict == Yes }

// A VendorMark is a vendor's kernel on which cgroups are marked: those of
// best-effort work yield to all others.
type VendorMark struct {
	Can     Mechanism // whether a kernel has it; named as the file of a cgroup
	Idles   bool      // the mark of best-effort work makes the group idle, too
	Instead string    // what Tenon uses on kernels without it
}

// VendorMarks is the table of these kernels, a row for each.
var VendorMarks = []VendorMark{
	{MechGroupIdentity, false, "sched_ext or core scheduling, and cpu.idle"},
	{MechGroupPriority, true, "sched_ext or core scheduling, and cpu.idle"},
	{MechQOSLevel, false, "sched_ext or core scheduling, and cpu.idle"},
}

// CanMark reports whether the kernel is one of VendorMarks.
func (c Capabilities) CanMark() bool {
	return slices.ContainsFunc(VendorMarks, func(v VendorMark) bool { return c.Can(v.Can) })
}

// The mechanisms, named as the kernel names the thing that decides.
const (
	MechCPUIdle        Mechanism = "cpu.idle"
	MechCPUWeight      Mechanism = "cpu.weight"
	MechCPUMax         Mechanism = "cpu.max"
	MechCPUBurst       Mechanism = "cpu.max.burst"
	MechCPUSets        Mechanism = "cpuset"
	MechCPUPartition   Mechanism = "cpuset.cpus.partition"
	MechMemoryLimit    Mechanism = "memory.max"
	MechMemoryProtect  Mechanism = "memory.low"
	MechPSINode        Mechanism = "psi"
	MechPSICgroup      Mechanism = "psi.cgroup"
	MechEEVDFSlice     Mechanism = "eevdf.slice"
	MechCoreSched      Mechanism = "core_sched"
	MechSchedExt       Mechanism = "sched_ext"
	MechSchedIdle      Mechanism = "SCHED_IDLE"
	MechBPF            Mechanism = "bpf.tracing"
	MechPerfCounters   Mechanism = "perf.hardware"
	MechResctrlL3      Mechanism = "resctrl.L3"
	MechResctrlMB      Mechanism = "resctrl.MB"
	MechGroupIdentity  Mechanism = "cpu.bvt_warp_ns"
	MechGroupPriority  Mechanism = "cpu.priority"
	MechQOSLevel       Mechanism = "cpu.qos_level"
	MechSchedStat      Mechanism = "schedstat"
	MechCgroupFreezer  Mechanism = "cgroup.freeze"
	MechHardwareSMT    Mechanism = "smt"
	MechIOMax          Mechanism = "io.max"
	MechIOWeight       Mechanism = "io.weight"
	MechBFQWeight      Mechanism = "io.bfq.weight"
	MechIOLatency      Mechanism = "io.latency"
	MechCgroupDelegate Mechanism = "cgroup.delegation"
)
