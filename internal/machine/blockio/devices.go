// Package blockio is block I/O on the real node: the block devices that there
// are, and the knobs of cgroups that limit and weigh I/O on them.
package blockio

import (
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// verifyWithin is for how long what is known of the devices is believed: a
// scheduler can be switched at any time.
const verifyWithin = 5 * time.Second

// Devices is what a node knows of its block devices. It looks at each again when
// one comes, goes or changes its size, which a single file tells, and every
// verifyWithin. It is safe for concurrent use.
type Devices struct {
	fs   proc.FS
	tree *cgroup.Tree // nil: this machine has no cgroups that we can use

	mu    sync.Mutex
	shown []node.File // the knobs of block I/O that snapshots show
	lines []proc.Partition
	at    time.Time
	known []node.BlockDevice
}

// New returns the devices of a node, whose cgroups are in tree; nil: it has no
// usable ones.
func New(fs proc.FS, tree *cgroup.Tree) *Devices { return &Devices{fs: fs, tree: tree} }

// Show notes which knobs of block I/O are to be shown, and returns all files.
func (d *Devices) Show(files []node.File) []node.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shown = slices.DeleteFunc(slices.Clone(files), func(f node.File) bool { return f.Category() != node.CategoryIO })
	return files
}

// Shown are the knobs of block I/O that snapshots show.
func (d *Devices) Shown() []node.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown
}

// List returns the block devices that have a size, by number; none if they
// cannot be listed. The caller does not change the slice.
func (d *Devices) List() []node.BlockDevice {
	lines, err := d.fs.Partitions()
	if err != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.known != nil && now.Sub(d.at) < verifyWithin && slices.Equal(lines, d.lines) {
		return d.known
	}
	d.known = []node.BlockDevice{}
	var cost map[unit.Device]bool
	if d.tree != nil {
		cost, _ = d.tree.IOCostDevices() // without the file no device has iocost
	}
	for _, p := range lines {
		read, err := d.fs.BlockDevice(p.Name)
		if err != nil {
			continue // it went away meanwhile
		}
		device := node.BlockDevice{Name: p.Name, ID: p.ID, Disk: read.Disk, Mapped: read.Mapped, Below: read.Below}
		switch {
		case read.Scheduler == "bfq":
			device.Weighs = node.FileBFQWeight
		case cost[read.Disk]:
			device.Weighs = node.FileIOWeight
		}
		d.known = append(d.known, device)
	}
	slices.SortFunc(d.known, func(a, b node.BlockDevice) int { return a.ID.Compare(b.ID) })
	d.lines, d.at = lines, now
	return d.known
}

// Possible returns v without the lines that the kernel cannot hold now: those
// of devices that are gone, and weights of devices that this file does not
// know. The kernel has dropped these lines itself.
func (d *Devices) Possible(k node.Knob, v node.Value) node.Value {
	switch v := v.(type) {
	case node.IOMax:
		if v == (node.IOMax{}) {
			return v // as most are
		}
		return node.IOMaxOf(only(v.Limits(), d.fs.HasDevice))
	case node.IOLatency:
		return node.IOLatencyOf(only(v.Targets(), d.fs.HasDevice))
	case node.IOWeight:
		if lines := v.Weights(); len(lines) > 0 {
			return node.IOWeightOf(v.Default, only(lines, d.weighed(k.File)))
		}
	}
	return v
}

// weighed tells for which devices the kernel holds weights in a file: bfq for
// those of which it is the scheduler, and iocost also for those for which it was
// switched off again. Where that cannot be read, it is all.
func (d *Devices) weighed(f node.File) func(unit.Device) bool {
	if f == node.FileIOWeight {
		cost, err := d.tree.IOCostDevices()
		return func(id unit.Device) bool {
			_, listed := cost[id]
			return listed || err != nil
		}
	}
	devices := d.List()
	return func(id unit.Device) bool {
		i := slices.IndexFunc(devices, func(d node.BlockDevice) bool { return d.ID == id })
		return len(devices) == 0 || i >= 0 && devices[i].Weighs == f
	}
}

// only drops the lines of devices that are not to be kept.
func only[T any](m map[unit.Device]T, keep func(unit.Device) bool) map[unit.Device]T {
	for d := range m {
		if !keep(d) {
			delete(m, d)
		}
	}
	return m
}
