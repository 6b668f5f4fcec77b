package blockio

import (
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Adapters returns the adapters of the knobs of block I/O.
func (d *Devices) Adapters() knob.Table {
	return knob.Table{
		node.FileIOMax:     knob.NewAdapter(d.readMax, d.writeMax),
		node.FileIOWeight:  knob.NewAdapter(d.weights(cgroup.IOCost)),
		node.FileBFQWeight: knob.NewAdapter(d.weights(cgroup.BFQ)),
		node.FileIOLatency: knob.NewAdapter(d.readLatency, d.writeLatency),
	}
}

func (d *Devices) readMax(k node.Knob) (node.IOMax, error) {
	read, err := d.tree.ReadIOMax(string(k.Cgroup))
	limits := make(map[unit.Device]node.IOLimits, len(read))
	for id, l := range read {
		limits[id] = node.IOLimits(l)
	}
	return node.IOMaxOf(limits), err
}

func (d *Devices) writeMax(k node.Knob, v node.IOMax) error {
	limits := map[unit.Device]cgroup.IOLimits{}
	for id, l := range v.Limits() {
		limits[id] = cgroup.IOLimits(l)
	}
	return d.tree.WriteIOMax(string(k.Cgroup), limits)
}

func (d *Devices) readLatency(k node.Knob) (node.IOLatency, error) {
	targets, err := d.tree.ReadIOLatency(string(k.Cgroup))
	return node.IOLatencyOf(targets), err
}

func (d *Devices) writeLatency(k node.Knob, v node.IOLatency) error {
	return d.tree.WriteIOLatency(string(k.Cgroup), v.Targets())
}

// weights returns two functions: one reads the I/O weights of w, one writes them.
func (d *Devices) weights(w cgroup.Weigher) (func(node.Knob) (node.IOWeight, error), func(node.Knob, node.IOWeight) error) {
	return func(k node.Knob) (node.IOWeight, error) {
			v, err := d.tree.ReadIOWeight(w, string(k.Cgroup))
			return node.IOWeightOf(v.Default, v.Devices), err
		}, func(k node.Knob, v node.IOWeight) error {
			return d.tree.WriteIOWeight(w, string(k.Cgroup), cgroup.IOWeight{Default: v.Default, Devices: v.Weights()})
		}
}
