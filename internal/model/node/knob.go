package node

import (
	"cmp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/unit"
)

// CgroupPath is the path of a cgroup below the root of the hierarchy, without a
// leading or trailing slash: "kubepods/besteffort". "" is the root.
type CgroupPath string

// Parent returns the cgroup above p; the parent of the root is the root.
func (p CgroupPath) Parent() CgroupPath {
	if i := strings.LastIndexByte(string(p), '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// Join returns the child of p with the given name.
func (p CgroupPath) Join(name string) CgroupPath {
	if p == "" {
		return CgroupPath(name)
	}
	return p + "/" + CgroupPath(name)
}

// Depth is 0 for the root, 1 for its children, and so on.
func (p CgroupPath) Depth() int {
	if p == "" {
		return 0
	}
	return strings.Count(string(p), "/") + 1
}

// Contains reports whether q is p or lies below p.
func (p CgroupPath) Contains(q CgroupPath) bool {
	return p == "" || len(q) >= len(p) && q[:len(p)] == p && (len(q) == len(p) || q[len(p)] == '/')
}

// UnitSuffixes are the endings of the units of systemd that have a cgroup with
// processes (systemd.unit(5)). Sockets, mounts and swaps have processes for short
// times, too, but the work that they start runs in services.
var UnitSuffixes = []string{".service", ".slice", ".scope"}

// IsUnit reports whether the name of p is that of a unit of systemd, which then has
// settings of its own for p.
func (p CgroupPath) IsUnit() bool {
	return slices.ContainsFunc(UnitSuffixes, func(s string) bool { return strings.HasSuffix(string(p), s) })
}

// File names a kind of knob. It stands for one kernel file, or for several
// files that the kernel couples. Tenon always writes coupled files together.
type File string

// The knobs of a cgroup.
const (
	// FileCPUWeight couples cpu.weight (v1 cpu.shares) and cpu.idle. While a cgroup is idle, the
	// kernel refuses to write its weight; when idle is cleared, the kernel resets the weight.
	FileCPUWeight File = "cpu.weight"
	// FileCPUMax couples quota, period and burst, because a burst may not exceed its quota.
	FileCPUMax File = "cpu.max"
	// FileCPUs is cpuset.cpus.
	FileCPUs File = "cpuset.cpus"
	// FileMems is cpuset.mems.
	FileMems File = "cpuset.mems"
	// FileMemory couples memory.min, low, high and max.
	FileMemory File = "memory"
	// FileRun says whether the processes of a BE workload's cgroup run. Tenon
	// freezes them with cgroup.freeze (v1 freezer.state), and ends them with
	// signals.
	FileRun File = "run"
)

// A Knob is a kernel setting that Tenon may own: a File of a cgroup, or of a
// control group of resctrl.
type Knob struct {
	Cgroup CgroupPath `json:"cgroup"`
	File   File       `json:"file"`
	// ControlGroup is the control group of resctrl that has the knob. It is
	// empty if the knob belongs to a cgroup.
	ControlGroup string `json:"resctrl,omitempty"`
}

// controlPrefix precedes the name of a control group in the text of a knob, to
// distinguish the name from the path of a cgroup.
const controlPrefix = "resctrl:"

// KnobAt returns the knob f of a cgroup, or of a control group such as
// "resctrl:BE". It parses the text that Knob.Object prints.
func KnobAt(where string, f File) Knob {
	if name, is := strings.CutPrefix(where, controlPrefix); is {
		return Knob{ControlGroup: name, File: f}
	}
	return Knob{Cgroup: CgroupPath(strings.Trim(where, "/")), File: f}
}

// Object prints the object that has the knob: a cgroup, "/" for the root cgroup,
// or a control group such as "resctrl:BE".
func (k Knob) Object() string {
	switch {
	case k.ControlGroup != "":
		return controlPrefix + k.ControlGroup
	case k.Cgroup == "":
		return "/"
	}
	return string(k.Cgroup)
}

// String prints "kubepods/besteffort cpu.weight" or "resctrl:BE L3".
func (k Knob) String() string { return k.Object() + " " + string(k.File) }

// Compare orders knobs by cgroup, then by control group, then by file.
func (k Knob) Compare(o Knob) int {
	return cmp.Or(strings.Compare(string(k.Cgroup), string(o.Cgroup)), strings.Compare(k.ControlGroup, o.ControlGroup),
		strings.Compare(string(k.File), string(o.File)))
}

// Kernel holds the facts about a kernel that decide what values mean and become.
type Kernel struct {
	// CgroupVersion is 1 or 2: the version of the hierarchy with the cpu controller.
	CgroupVersion int `json:"cgroup_version"`
	// PageSize is the unit to which memory limits are rounded.
	PageSize unit.Bytes `json:"page_size"`
	// RecursiveProtection says that cgroup v2 is mounted with
	// memory_recursiveprot. If the children of a cgroup do not use all of its
	// memory protection, the rest then protects other memory below it.
	RecursiveProtection bool `json:"recursive_protection,omitempty"`
	// MB is the range and the step of values for memory bandwidth.
	MB Bandwidth `json:"mb,omitzero"`
}

// Knobs holds the present values of all knobs of the snapshot.
type Knobs struct {
	Kernel Kernel `json:"kernel"`
	// Now is the present value of each knob. A knob that could not be read is absent.
	Now map[Knob]Value `json:"-"`
	// Before holds the knobs that Tenon wrote, each with its value before
	// Tenon's first write. The journal stores these values. If another component
	// has since written a part of a knob that Tenon had left as it was, Before
	// has that value of the part.
	Before map[Knob]Value `json:"-"`
}

// Sorted returns the keys of m in the order of Knob.Compare.
func Sorted(m map[Knob]Value) []Knob {
	keys := make([]Knob, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, Knob.Compare)
	return keys
}
