package policy

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/blockio"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// makeIO gives a new cgroup the knobs of block I/O.
func (n *scene) makeIO(p node.CgroupPath) {
	now := n.snap.Knobs.Now
	now[node.Knob{Cgroup: p, File: node.FileIOMax}] = node.IOMax{}
	now[node.Knob{Cgroup: p, File: node.FileBFQWeight}] = node.IOWeightOf(100, nil)
	if n.snap.Knobs.Kernel.CgroupVersion == 2 {
		now[node.Knob{Cgroup: p, File: node.FileIOWeight}] = node.IOWeightOf(100, nil)
		now[node.Knob{Cgroup: p, File: node.FileIOLatency}] = node.IOLatency{}
	}
}

// readDevice adds a block device, or replaces the device of this name.
func (n *scene) readDevice(t *testing.T, f []string) {
	t.Helper()
	id := mustParse(t, word{"device", f[1]}, unit.ParseDevice)
	d := node.BlockDevice{Name: f[0], ID: id, Disk: id}
	for _, w := range words(strings.Join(f[2:], " ")) {
		switch w.key {
		case "of":
			d.Disk = mustParse(t, w, unit.ParseDevice)
		case "mapped":
			d.Mapped = w.val
		case "on":
			for _, below := range strings.Split(w.val, ",") {
				d.Below = append(d.Below, mustParse(t, word{w.key, below}, unit.ParseDevice))
			}
		case "bfq":
			d.Weighs = node.FileBFQWeight
		case "iocost":
			d.Weighs = node.FileIOWeight
		default:
			t.Fatalf("scenario word %q: unknown", w.key)
		}
	}
	n.unplug(f[0], false)
	n.snap.Devices = append(slices.Clone(n.snap.Devices), d)
}

// unplug removes a device and the limits that cgroups have for it.
func (n *scene) unplug(name string, forGood bool) {
	i := slices.IndexFunc(n.snap.Devices, func(d node.BlockDevice) bool { return d.Name == name })
	if i < 0 {
		return
	}
	id := n.snap.Devices[i].ID
	n.snap.Devices = slices.Delete(slices.Clone(n.snap.Devices), i, i+1)
	if !forGood {
		return
	}
	for _, knobs := range []map[node.Knob]node.Value{n.snap.Knobs.Now, n.snap.Knobs.Before} {
		for k, v := range knobs {
			if v, is := v.(node.IOMax); is {
				m := v.Limits()
				delete(m, id)
				knobs[k] = node.IOMaxOf(m)
			}
		}
	}
}

// readBlock reads the settings of a class for a device.
func (n *scene) readBlock(t *testing.T, f []string) {
	t.Helper()
	class := node.Class(f[0])
	b := blockio.Device{Name: f[1]}
	rate := func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }
	for _, w := range words(strings.Join(f[2:], " ")) {
		switch w.key {
		case "group":
			b.VolumeGroup = true
		case "rbps", "wbps", "riops", "wiops":
			*map[string]*int64{"rbps": &b.ReadBPS, "wbps": &b.WriteBPS, "riops": &b.ReadIOPS, "wiops": &b.WriteIOPS}[w.key] = mustParse(t, w, rate)
		case "weight":
			b.WeightPercent = mustParse(t, w, percent)
		case "latency":
			b.Latency = mustParse(t, w, time.ParseDuration)
		default:
			t.Fatalf("scenario word %q: unknown", w.key)
		}
	}
	blocks := map[node.Class][]blockio.Device{class: {b}}
	for c, old := range n.config.IO.Classes {
		blocks[c] = append(slices.Clone(old), blocks[c]...)
	}
	n.config.IO.Classes = blocks
}
