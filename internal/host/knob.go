package host

import (
	"fmt"

	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/journal"
	"tenon.sh/tenon/internal/node"
)

// readKnob reads the present value of a knob.
func (h *Host) readKnob(k node.Knob) (node.Value, error) {
	p := string(k.Cgroup)
	switch k.File {
	case node.FileCPUWeight:
		v, err := h.tree.ReadCPUWeight(p)
		return h.asked(k, node.CPUWeight(v)), err
	case node.FileCPUMax:
		v, err := h.tree.ReadCPUMax(p)
		return node.CPUMax(v), err
	case node.FileCPUs:
		v, err := h.tree.ReadCPUs(p)
		return node.CPUs{Set: v}, err
	case node.FileMems:
		v, err := h.tree.ReadMems(p)
		return node.CPUs{Set: v}, err
	case node.FileMemory:
		v, err := h.tree.ReadMemory(p)
		return node.Memory(v), err
	case node.FilePIDs:
		v, err := h.tree.ReadPIDs(p)
		return node.PIDs(v), err
	case node.FileRun:
		return h.readRun(p)
	}
	if isolates(k) || k.File == node.FileIdentity {
		return h.readIsolation(k)
	}
	if ofIO(k) {
		return h.readIO(k)
	}
	if divides(k) {
		return h.readControl(k)
	}
	return nil, fmt.Errorf("unknown knob %q: want one of %v", k.File, node.Files)
}

// writeKnob writes a knob. The value must be of the type of the knob's file.
func (h *Host) writeKnob(k node.Knob, v node.Value) error {
	p := string(k.Cgroup)
	switch v := v.(type) {
	case node.CPUWeight:
		if k.File == node.FileCPUWeight {
			h.isolation.uneased(k.Cgroup)
			return h.tree.WriteCPUWeight(p, cgroup.CPUWeight(v))
		}
	case node.CPUMax:
		if k.File == node.FileCPUMax {
			return h.tree.WriteCPUMax(p, cgroup.CPUMax(v))
		}
	case node.CPUs:
		switch k.File {
		case node.FileCPUs:
			return h.tree.WriteCPUs(p, v.Set)
		case node.FileMems:
			return h.tree.WriteMems(p, v.Set)
		}
	case node.Memory:
		if k.File == node.FileMemory {
			return h.tree.WriteMemory(p, cgroup.Memory(v))
		}
	case node.PIDs:
		if k.File == node.FilePIDs {
			return h.tree.WritePIDs(p, cgroup.PIDs(v))
		}
	case node.Run:
		if k.File == node.FileRun {
			return h.writeRun(k.Cgroup, v)
		}
	case node.IOMax, node.IOWeight, node.IOLatency:
		return h.writeIO(k, v)
	}
	if isolates(k) || k.File == node.FileIdentity {
		return h.writeIsolation(k, v)
	}
	if divides(k) {
		return h.writeControl(k, v)
	}
	return fmt.Errorf("write %v: a %T is no value of this file", k, v)
}

// ours reports whether a present value is one that Tenon wrote, or that the
// kernel made from what Tenon wrote. Anything else is somebody else's.
func (h *Host) ours(t journal.Touch, now node.Value) bool {
	if _, threads := now.(node.Threads); threads {
		return true // nobody else gives them what that is about
	}
	if t.Written != nil && (now == t.Written || h.derived(t.Written, now)) || joined(t, now) {
		return true
	}
	if _, memory := now.(node.Memory); memory && t.Written != nil && between(t.Before, t.Written, now) {
		return true // each file is Tenon's or as it was: a kubelet that starts puts some of them back
	}
	if t.Pending == nil {
		return false
	}
	from := t.Written
	if from == nil {
		from = t.Before
	}
	return between(from, t.Pending, now)
}

// derived reports whether the kernel made now from written: on v1 it takes a
// CPU that goes offline out of every set.
func (h *Host) derived(written, now node.Value) bool {
	w, ok1 := written.(node.CPUs)
	n, ok2 := now.(node.CPUs)
	if !ok1 || !ok2 || n.Set.Empty() || !w.Set.Contains(n.Set) {
		return false
	}
	cpus, err := h.fs.Topology()
	if err != nil {
		return false
	}
	for _, c := range cpus {
		if w.Set.Has(c.ID) && !n.Set.Has(c.ID) {
			return false
		}
	}
	return true
}

// between reports whether now can be the state of a knob whose change from
// one value to another was cut short: the files that the kernel couples are
// written one after the other, and some take a neutral value on the way.
func between(from, to, now node.Value) bool {
	if now == from || now == to {
		return true
	}
	switch n := now.(type) {
	case node.L3:
		return partway(from, to, n)
	case node.CPUWeight:
		// Clearing idle resets the weight, before the new one is written.
		f, _ := from.(node.CPUWeight)
		return f.Idle && n == node.CPUWeight{Weight: defaultWeight}
	case node.CPUMax:
		f, ok1 := from.(node.CPUMax)
		t, ok2 := to.(node.CPUMax)
		return ok1 && ok2 && oneOf(n.Quota, f.Quota, t.Quota, node.NoQuota) &&
			oneOf(n.Period, f.Period, t.Period) && oneOf(n.Burst, f.Burst, t.Burst, 0)
	case node.Memory:
		f, ok1 := from.(node.Memory)
		t, ok2 := to.(node.Memory)
		return ok1 && ok2 && oneOf(n.Min, f.Min, t.Min) && oneOf(n.Low, f.Low, t.Low) &&
			oneOf(n.High, f.High, t.High) && oneOf(n.Max, f.Max, t.Max)
	case node.IOMax, node.IOWeight, node.IOLatency:
		return ioBetween(from, to, n)
	}
	return false
}

func oneOf[T comparable](v T, list ...T) bool {
	for _, w := range list {
		if v == w {
			return true
		}
	}
	return false
}
