package host

import (
	"errors"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// readUsage reads the node's counters that every snapshot needs fresh, and
// reports whether memory is scarce.
func (h *Host) readUsage(s *node.Snapshot) (scarce bool) {
	if stat, err := h.fs.Stat(); err == nil {
		s.Usage.CPU, s.Usage.Steal = node.Some(stat.All.Busy()), node.Some(stat.All.Steal)
		s.Busy = make(map[unit.CPU]time.Duration, len(stat.PerCPU))
		for id, t := range stat.PerCPU {
			s.Busy[id] = t.Busy()
		}
	}
	if m, err := h.fs.MemInfo(); err == nil {
		s.Usage.Memory, s.MemoryTotal = node.Some(m.Total-m.Available), node.Some(m.Total)
		// The kubelet's formula for the root cgroup: memory charged or used by
		// the kernel, without the page cache that was not used lately.
		s.Usage.WorkingSet = node.Some(max(m.Total-m.Free-m.InactiveFile, 0))
		scarce = m.Available < m.Total/scarcePart
	}
	for _, r := range resources {
		if p, err := h.fs.Pressure(r.name); err == nil {
			*r.of(&s.Usage.Pressure) = stallOf(p)
		}
	}
	// All tasks of a node cannot wait for a CPU at once; the kernel shows a
	// line of zeros.
	s.Usage.Pressure.CPU.Full = node.Maybe[time.Duration]{}
	if h.tree == nil {
		return scarce
	}
	// Many kernels sample /proc/stat at the tick; cgroups count exactly.
	if root, err := h.tree.CPUUse(""); err == nil {
		s.Usage.CPU = node.Some(root.Usage)
	}
	if exact, err := h.tree.UsagePerCPU(""); err == nil {
		s.Busy = exact
	}
	return scarce
}

// resources are the pressure files, by the kernel's names.
var resources = []struct {
	name string
	of   func(*node.Pressure) *node.Stall
}{
	{"cpu", func(p *node.Pressure) *node.Stall { return &p.CPU }},
	{"memory", func(p *node.Pressure) *node.Stall { return &p.Memory }},
	{"io", func(p *node.Pressure) *node.Stall { return &p.IO }},
}

func stallOf(p unit.Pressure) node.Stall {
	return node.Stall{Some: node.Some(p.Some.Total), Full: node.Some(p.Full.Total)}
}

// usageOf reads the counters of a workload that every snapshot needs fresh, and
// reports whether its cgroup is gone.
func (h *Host) usageOf(w node.Workload) (u node.Usage, gone bool) {
	p := string(w.Cgroup)
	var err error
	if h.throttlingIsSeldom(w) {
		var used time.Duration
		if used, err = h.tree.CPUUsage(p); err == nil {
			u.CPU = node.Some(used)
		}
	} else {
		err = h.readCPUUse(&u, p)
		h.addThrottling(&u, w)
	}
	if errors.Is(err, cgroup.ErrGone) && !h.tree.Exists(p) {
		return u, true // in all v1 hierarchies
	}
	if m, err := h.tree.MemoryCurrent(p); err == nil {
		u.Memory = node.Some(m)
	}
	if w.Class.Sensitive() {
		u.PerCPU, _ = h.tree.UsagePerCPU(p) // v2 does not count it
	}
	return u, false
}

// addThrottling adds the throttling of a service's containers: one of several
// throttled containers need not throttle the whole. A single container has the
// limit of the workload, whose counters suffice. If the workload has no limit
// because one container has none, the others count.
func (h *Host) addThrottling(u *node.Usage, w node.Workload) {
	if w.Class != node.LS || len(w.Containers) < 2 || !u.Periods.Known() {
		return
	}
	for _, part := range w.Containers {
		if !w.CPULimit.Known() && !part.CPULimit.Known() {
			continue
		}
		if c, err := h.tree.CPUUse(string(part.Cgroup)); err == nil {
			u.Throttled = node.Some(u.Throttled.Or(0) + c.Throttled)
			u.Periods = node.Some(u.Periods.Or(0) + c.Periods)
			u.ThrottledPeriods = node.Some(u.ThrottledPeriods.Or(0) + c.ThrottledPeriods)
		}
	}
}

// throttlingIsSeldom reports whether throttling is a slow counter. On cgroup v2
// it comes with the CPU time; on v1 it is a file of its own, and needed at once
// only if latency-sensitive work waits.
func (h *Host) throttlingIsSeldom(w node.Workload) bool {
	return h.round != nil && !w.Class.Sensitive() && h.tree.VersionOf("cpu") == 1
}

func (h *Host) readCPUUse(u *node.Usage, p string) error {
	c, err := h.tree.CPUUse(p)
	if err == nil {
		u.CPU, u.Throttled = node.Some(c.Usage), node.Some(c.Throttled)
		u.Periods, u.ThrottledPeriods = node.Some(c.Periods), node.Some(c.ThrottledPeriods)
	}
	return err
}
