// Package blockio handles block I/O on the real node. It lists the block
// devices, and reads and writes the knobs that limit and weight the I/O of
// cgroups.
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

// verifyWithin is the maximum age of the list of devices. The I/O scheduler of
// a device may change although the partitions stay the same.
const verifyWithin = 5 * time.Second

// Devices caches the list of the block devices of a node. It reads the devices
// again when the kernel's list of partitions changes (a device appears,
// disappears or changes its size), and after verifyWithin. It is safe for
// concurrent use.
type Devices struct {
	fs   proc.FS
	tree *cgroup.Tree // nil: this machine has no usable cgroups

	mu    sync.Mutex
	shown []node.File // the knobs of block I/O in snapshots
	lines []proc.Partition
	at    time.Time
	known []node.BlockDevice
}

// New returns the devices of a node. tree holds the node's cgroups, or is nil
// if the node has no usable cgroups.
func New(fs proc.FS, tree *cgroup.Tree) *Devices { return &Devices{fs: fs, tree: tree} }

// Show selects the knobs of block I/O that snapshots contain: those in files.
// It ignores other kinds of knobs, and returns files unchanged.
func (d *Devices) Show(files []node.File) []node.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shown = slices.DeleteFunc(slices.Clone(files), func(f node.File) bool { return f.Category() != node.CategoryIO })
	return files
}

// Shown returns the knobs of block I/O that snapshots contain.
func (d *Devices) Shown() []node.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown
}

// List returns the block devices with a size above 0, ordered by number. If
// they cannot be read, it returns none. It omits a device whose line or
// description is damaged. The caller must not change the slice.
func (d *Devices) List() []node.BlockDevice {
	lines, err := d.fs.Partitions()
	if err != nil && len(lines) == 0 {
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
		cost, _ = d.tree.IOCostDevices() //nolint:errcheck // without the file, no device has iocost
	}
	for _, p := range lines {
		read, err := d.fs.BlockDevice(p.Name)
		if err != nil {
			continue // the device was removed meanwhile
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

// DropImpossible returns v without the lines that the kernel cannot store now:
// lines of removed devices, which the kernel deletes, too, and weights of
// devices on which the file k.File has no effect.
func (d *Devices) DropImpossible(k node.Knob, v node.Value) node.Value {
	switch v := v.(type) {
	case node.IOMax:
		if v == (node.IOMax{}) {
			return v // the usual case
		}
		return node.IOMaxOf(keepLines(v.Limits(), d.fs.HasDevice))
	case node.IOLatency:
		return node.IOLatencyOf(keepLines(v.Targets(), d.fs.HasDevice))
	case node.IOWeight:
		if lines := v.Weights(); len(lines) > 0 {
			return node.IOWeightOf(v.Default, keepLines(lines, d.weightFilter(k.File)))
		}
	}
	return v
}

// weightFilter returns a function that reports whether the kernel stores a
// device's weight in file f. In the file of bfq, it stores weights only for
// devices that bfq schedules. In the file of iocost, it stores them for each
// device for which iocost was ever enabled. If the devices cannot be read, the
// function returns true.
func (d *Devices) weightFilter(f node.File) func(unit.Device) bool {
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

// keepLines deletes the lines of the devices for which keep returns false.
func keepLines[T any](m map[unit.Device]T, keep func(unit.Device) bool) map[unit.Device]T {
	for d := range m {
		if !keep(d) {
			delete(m, d)
		}
	}
	return m
}
