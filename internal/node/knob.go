package node

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/unit"
)

// CgroupPath is a cgroup below the root of the hierarchy, without leading or
// trailing slash: "kubepods/besteffort". "" is the root itself.
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

// File names a knob: one kernel file, or several that the kernel couples and
// that are therefore read, written and restored as one.
type File string

// The knobs of a cgroup.
const (
	// FileCPUWeight couples cpu.weight (v1 cpu.shares) and cpu.idle: setting
	// idle makes the weight unwritable, and clearing it resets the weight.
	FileCPUWeight File = "cpu.weight"
	// FileCPUMax couples quota, period and burst: a burst may not exceed its
	// quota.
	FileCPUMax File = "cpu.max"
	// FileCPUs is cpuset.cpus.
	FileCPUs File = "cpuset.cpus"
	// FileMems is cpuset.mems.
	FileMems File = "cpuset.mems"
	// FileMemory couples memory.min, low, high and max.
	FileMemory File = "memory"
	// FilePIDs is pids.max.
	FilePIDs File = "pids.max"
)

// Files lists the knobs that every managed cgroup has.
var Files = []File{FileCPUWeight, FileCPUMax, FileCPUs, FileMems, FileMemory, FilePIDs}

// A Knob is something in the kernel that Tenon can turn: a File of a cgroup.
type Knob struct {
	Cgroup CgroupPath `json:"cgroup"`
	File   File       `json:"file"`
}

// String prints "kubepods/besteffort cpu.weight".
func (k Knob) String() string {
	if k.Cgroup == "" {
		return "/ " + string(k.File)
	}
	return string(k.Cgroup) + " " + string(k.File)
}

// Compare orders knobs by cgroup, then file.
func (k Knob) Compare(o Knob) int {
	if c := strings.Compare(string(k.Cgroup), string(o.Cgroup)); c != 0 {
		return c
	}
	return strings.Compare(string(k.File), string(o.File))
}

// Kernel holds the facts that decide how a written value reads back.
type Kernel struct {
	// CgroupVersion is 1 or 2: which hierarchy carries the cpu controller.
	CgroupVersion int `json:"cgroup_version"`
	// PageSize rounds memory limits.
	PageSize unit.Bytes `json:"page_size"`
}

// Knobs is the present state of all knobs in sight.
type Knobs struct {
	Kernel Kernel `json:"kernel"`
	// Now is the present value of each knob. A knob that could not be read
	// is absent.
	Now map[Knob]Value `json:"-"`
	// Before is the value from before Tenon's first touch, from the journal.
	// Only knobs that Tenon has touched are here.
	Before map[Knob]Value `json:"-"`
}

// Sorted returns the knobs of m in a stable order.
func Sorted(m map[Knob]Value) []Knob {
	keys := make([]Knob, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, Knob.Compare)
	return keys
}

// ParseValue reads the value of the given file from the text that its String
// prints.
func ParseValue(f File, text string) (Value, error) {
	switch f {
	case FileCPUWeight:
		return parseCPUWeight(text)
	case FileCPUMax:
		return parseCPUMax(text)
	case FileCPUs, FileMems:
		set, err := unit.ParseCPUSet(text)
		return CPUs{set}, err
	case FileMemory:
		return parseMemory(text)
	case FilePIDs:
		return parsePIDs(text)
	}
	return nil, fmt.Errorf("unknown knob %q: want one of %v", f, Files)
}
