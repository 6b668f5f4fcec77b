package host

import (
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/proc"
	"tenon.sh/tenon/internal/unit"
)

// blocks is what a host knows of the block devices. It looks at each again when
// one comes, goes or changes its size, which a single file tells, and every
// verifyWithin, since a scheduler can be switched at any time.
type blocks struct {
	mu    sync.Mutex
	shown []node.File // the knobs of block I/O that snapshots show
	lines []proc.Partition
	at    time.Time
	known []node.BlockDevice
}

// show notes which knobs of block I/O are to be shown, and returns all files.
func (b *blocks) show(files []node.File) []node.File {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shown = slices.DeleteFunc(slices.Clone(files), func(f node.File) bool { return !slices.Contains(node.IOFiles, f) })
	return files
}

// files are the knobs of block I/O that snapshots show.
func (b *blocks) files() []node.File {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shown
}

// list returns the block devices that have a size, by number; none if they
// cannot be listed. The caller does not change the slice.
func (b *blocks) list(h *Host) []node.BlockDevice {
	lines, err := h.fs.Partitions()
	if err != nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.known != nil && now.Sub(b.at) < verifyWithin && slices.Equal(lines, b.lines) {
		return b.known
	}
	b.known = []node.BlockDevice{}
	var cost map[unit.Device]bool
	if h.tree != nil {
		cost, _ = h.tree.IOCostDevices() // without the file nobody has iocost
	}
	for _, p := range lines {
		d, err := h.fs.BlockDevice(p.Name)
		if err != nil {
			continue // it went away meanwhile
		}
		device := node.BlockDevice{Name: p.Name, ID: p.ID, Disk: d.Disk, Mapped: d.Mapped, Below: d.Below}
		switch {
		case d.Scheduler == "bfq":
			device.Weighs = node.FileBFQWeight
		case cost[d.Disk]:
			device.Weighs = node.FileIOWeight
		}
		b.known = append(b.known, device)
	}
	slices.SortFunc(b.known, func(a, b node.BlockDevice) int { return a.ID.Compare(b.ID) })
	b.lines, b.at = lines, now
	return b.known
}

// possible returns v without the lines that the kernel cannot hold now: those
// of devices that are gone, and weights of devices that this file does not
// know. The kernel has dropped these lines itself.
func (h *Host) possible(k node.Knob, v node.Value) node.Value {
	switch v := v.(type) {
	case node.IOMax:
		if v == (node.IOMax{}) {
			return v // as most are
		}
		return node.IOMaxOf(only(v.Limits(), h.fs.HasDevice))
	case node.IOLatency:
		return node.IOLatencyOf(only(v.Targets(), h.fs.HasDevice))
	case node.IOWeight:
		if lines := v.Weights(); len(lines) > 0 {
			return node.IOWeightOf(v.Default, only(lines, h.weighed(k.File)))
		}
	}
	return v
}

// weighed tells for which devices the kernel holds weights in a file: bfq for
// those of which it is the scheduler, and iocost also for those for which it was
// switched off again. Where that cannot be read, it is all.
func (h *Host) weighed(f node.File) func(unit.Device) bool {
	if f == node.FileIOWeight {
		cost, err := h.tree.IOCostDevices()
		return func(id unit.Device) bool {
			_, listed := cost[id]
			return listed || err != nil
		}
	}
	devices := h.blocks.list(h)
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
