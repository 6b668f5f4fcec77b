package host

import (
	"maps"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// adapters returns an adapter for each kind of knob of this host.
func (h *Host) adapters() knob.Table {
	table := knob.Table{
		node.FileCPUWeight: {
			Read: func(k node.Knob) (node.Value, error) {
				v, err := h.tree.ReadCPUWeight(string(k.Cgroup))
				return h.isolation.Exempt().Weight(k, node.CPUWeight(v)), err
			},
			Write: knob.NewAdapter(nil, func(k node.Knob, v node.CPUWeight) error {
				h.isolation.Exempt().WeightSet(k.Cgroup)
				return h.tree.WriteCPUWeight(string(k.Cgroup), cgroup.CPUWeight(v))
			}).Write,
		},
		node.FileCPUMax: knob.NewAdapter(
			func(k node.Knob) (node.CPUMax, error) {
				v, err := h.tree.ReadCPUMax(string(k.Cgroup))
				return node.CPUMax(v), err
			},
			func(k node.Knob, v node.CPUMax) error { return h.tree.WriteCPUMax(string(k.Cgroup), cgroup.CPUMax(v)) }),
		node.FileCPUs: knob.NewAdapter(
			func(k node.Knob) (node.CPUs, error) {
				v, err := h.tree.ReadCPUs(string(k.Cgroup))
				return node.CPUs{Set: v}, err
			},
			func(k node.Knob, v node.CPUs) error { return h.tree.WriteCPUs(string(k.Cgroup), v.Set) }),
		node.FileMems: knob.NewAdapter(
			func(k node.Knob) (node.CPUs, error) {
				v, err := h.tree.ReadMems(string(k.Cgroup))
				return node.CPUs{Set: v}, err
			},
			func(k node.Knob, v node.CPUs) error { return h.tree.WriteMems(string(k.Cgroup), v.Set) }),
		node.FileMemory: knob.NewAdapter(
			func(k node.Knob) (node.Memory, error) {
				v, err := h.tree.ReadMemory(string(k.Cgroup))
				return node.Memory(v), err
			},
			func(k node.Knob, v node.Memory) error { return h.tree.WriteMemory(string(k.Cgroup), cgroup.Memory(v)) }),
		node.FileRun: knob.NewAdapter(
			func(k node.Knob) (node.Run, error) { return h.runs.read(string(k.Cgroup)) },
			func(k node.Knob, v node.Run) error { return h.runs.write(k.Cgroup, v) }),
	}
	for _, l := range node.LimitFiles {
		table[l.File] = knob.NewAdapter(
			func(k node.Knob) (node.Maximum, error) {
				v, err := h.tree.ReadLimit(string(k.Cgroup), string(l.File))
				return l.Of(v.Max), err
			},
			func(k node.Knob, v node.Maximum) error {
				return h.tree.WriteLimit(string(k.Cgroup), string(l.File), cgroup.Maximum{Max: v.Max})
			})
	}
	maps.Copy(table, h.blocks.Adapters())
	maps.Copy(table, h.controls.Adapters())
	maps.Copy(table, h.isolation.Adapters())
	return table
}
