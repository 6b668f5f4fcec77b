package host

import (
	"maps"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// adapters returns how this host reads and writes each kind of knob.
func (h *Host) adapters() knob.Table {
	table := knob.Table{
		node.FileCPUWeight: {
			Read: func(k node.Knob) (node.Value, error) {
				v, err := h.tree.ReadCPUWeight(string(k.Cgroup))
				return h.isolation.Exempt().Weight(k, node.CPUWeight(v)), err
			},
			Write: knob.Of(nil, func(k node.Knob, v node.CPUWeight) error {
				h.isolation.Exempt().WeightSet(k.Cgroup)
				return h.tree.WriteCPUWeight(string(k.Cgroup), cgroup.CPUWeight(v))
			}).Write,
		},
		node.FileCPUMax: knob.Of(
			func(k node.Knob) (node.CPUMax, error) {
				v, err := h.tree.ReadCPUMax(string(k.Cgroup))
				return node.CPUMax(v), err
			},
			func(k node.Knob, v node.CPUMax) error { return h.tree.WriteCPUMax(string(k.Cgroup), cgroup.CPUMax(v)) }),
		node.FileCPUs: knob.Of(
			func(k node.Knob) (node.CPUs, error) {
				v, err := h.tree.ReadCPUs(string(k.Cgroup))
				return node.CPUs{Set: v}, err
			},
			func(k node.Knob, v node.CPUs) error { return h.tree.WriteCPUs(string(k.Cgroup), v.Set) }),
		node.FileMems: knob.Of(
			func(k node.Knob) (node.CPUs, error) {
				v, err := h.tree.ReadMems(string(k.Cgroup))
				return node.CPUs{Set: v}, err
			},
			func(k node.Knob, v node.CPUs) error { return h.tree.WriteMems(string(k.Cgroup), v.Set) }),
		node.FileMemory: knob.Of(
			func(k node.Knob) (node.Memory, error) {
				v, err := h.tree.ReadMemory(string(k.Cgroup))
				return node.Memory(v), err
			},
			func(k node.Knob, v node.Memory) error { return h.tree.WriteMemory(string(k.Cgroup), cgroup.Memory(v)) }),
		node.FilePIDs: knob.Of(
			func(k node.Knob) (node.PIDs, error) {
				v, err := h.tree.ReadPIDs(string(k.Cgroup))
				return node.PIDs(v), err
			},
			func(k node.Knob, v node.PIDs) error { return h.tree.WritePIDs(string(k.Cgroup), cgroup.PIDs(v)) }),
		node.FileRun: knob.Of(
			func(k node.Knob) (node.Run, error) { return h.readRun(string(k.Cgroup)) },
			func(k node.Knob, v node.Run) error { return h.writeRun(k.Cgroup, v) }),
	}
	maps.Copy(table, h.blocks.Adapters())
	maps.Copy(table, h.controls.Adapters())
	maps.Copy(table, h.isolation.Adapters())
	return table
}

// ours reports whether a present value is Tenon's, or the kernel's variant of
// it. Any other value was written by another component.
func (h *Host) ours(k node.Knob, t journal.Touch, now node.Value) bool {
	if k.File.OfThreads() {
		return true // only Tenon sets these attributes
	}
	if t.Written != nil && (now == t.Written || h.derived(t.Written, now)) || cachectl.IsOurs(t, now) {
		return true
	}
	if k.File == node.FileMemory && t.Written != nil && knob.Between(k.File, t.Before, t.Written, now) {
		return true // each file is Tenon's or as before: a kubelet that starts restores some of them
	}
	if t.Pending == nil {
		return false
	}
	from := t.Written
	if from == nil {
		from = t.Before
	}
	return knob.Between(k.File, from, t.Pending, now)
}

// derived reports whether the kernel made now from written: on v1 it removes an
// offline CPU from every cpuset.
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

// attainable returns a touch without the lines of devices that are gone, which
// can be neither read nor restored.
func (h *Host) attainable(k node.Knob, t journal.Touch) journal.Touch {
	if k.File.Category() == node.CategoryIO {
		t.Before = h.blocks.Possible(k, t.Before)
		if t.Written != nil {
			t.Written = h.blocks.Possible(k, t.Written)
		}
		if t.Pending != nil {
			t.Pending = h.blocks.Possible(k, t.Pending)
		}
	}
	return t
}
