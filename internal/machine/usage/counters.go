// Package usage reads how much of a node's CPU, memory and disks its workloads
// use, and how long their threads wait for a CPU.
package usage

import (
	"cmp"
	"errors"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Counters reads the counters of the node and of its workloads into snapshots.
// It is safe for concurrent use.
type Counters struct {
	fs    proc.FS
	tree  *cgroup.Tree // nil: this machine has no usable cgroups
	slow  *slowCache   // nil unless resident
	waits waitSampler
	// sleepers is nil unless the host is resident.
	sleepers *sleepers
	// threads counts the threads of workloads, if their quota throttles them in
	// most periods.
	threads threadCounter
	faults  faults
}

// New returns the counters of a node. tree holds the node's cgroups, or is nil
// if there are no usable ones. resident is true only in tenond: Counters then
// caches the counters that are expensive to read (slow counters), and samples waits.
func New(fs proc.FS, tree *cgroup.Tree, resident bool) *Counters {
	c := &Counters{fs: fs, tree: tree}
	if resident {
		c.slow, c.sleepers = newSlowCache(), new(sleepers)
	}
	return c
}

// Node reads those counters of the node that each snapshot needs fresh. It
// reports whether memory is scarce.
func (c *Counters) Node(s *node.Snapshot) (scarce bool) {
	stat, err := c.fs.Stat()
	if err == nil {
		if !stat.Unread.Lack("cpu") {
			s.Usage.CPU = node.Some(stat.All.Busy())
			if !stat.Unread.Lack("cpu steal") {
				s.Usage.Steal = node.Some(stat.All.Steal)
			}
		}
		err = stat.Unread.Err("/proc/stat")
		s.Busy = make(map[unit.CPU]time.Duration, len(stat.PerCPU))
		for id, t := range stat.PerCPU {
			s.Busy[id] = t.Busy()
		}
	}
	c.faults.note("/proc/stat", "", err)
	scarce = c.readNodeMemory(s)
	for _, r := range resources {
		p, err := c.fs.Pressure(r.name)
		*r.of(&s.Usage.Pressure) = stallOf(p)
		c.faults.note(r.file, "", err)
	}
	// All tasks of a node cannot wait for a CPU at the same time, so the kernel
	// shows only zeros in this field.
	s.Usage.Pressure.CPU.Full = node.Maybe[time.Duration]{}
	if c.tree == nil {
		return scarce
	}
	// On many kernels, /proc/stat only samples the times at each timer tick.
	// The counters of cgroups are exact.
	used, err := c.tree.CPUUsage("")
	if err == nil {
		s.Usage.CPU = node.Some(used)
	}
	c.faults.note("cpu.stat", "", err)
	if exact, err := c.tree.UsagePerCPU(""); err == nil {
		s.Busy = exact
	}
	return scarce
}

// readNodeMemory reads the memory of the node. scarce is false if it is not known.
func (c *Counters) readNodeMemory(s *node.Snapshot) (scarce bool) {
	m, err := c.fs.MemInfo()
	if err != nil {
		c.faults.note("/proc/meminfo", "", err)
		return false
	}
	// No workload without huge pages can have the memory that is set aside for
	// them, and no end of one gives it back. Kubernetes offers it as resources of
	// its own, and subtracts it from allocatable memory.
	total := max(m.Total-m.HugePages, 0)
	s.MemoryTotal = node.Some(total)
	if !m.Unread.Lack("MemAvailable") {
		s.Usage.Memory = node.Some(max(total-m.Available, 0))
		scarce = m.Available < total/scarceDivisor
	}
	// The kubelet computes the same for the root cgroup: memory that is charged
	// or that the kernel uses, minus page cache that was not used lately.
	if !m.Unread.Lack("MemFree") {
		s.Usage.Free = node.Some(m.Free)
	}
	if !m.Unread.Lack("MemFree", "Inactive(file)") {
		s.Usage.WorkingSet = node.Some(max(total-m.Free-m.InactiveFile, 0))
	}
	if m.Unread.Lack("MemAvailable", "MemFree", "Inactive(file)") { // the agent uses no other fields
		err = m.Unread.Err("/proc/meminfo")
	}
	c.faults.note("/proc/meminfo", "", err)
	return scarce
}

// resources lists the kernel's pressure files by name.
var resources = []struct {
	name, file string
	of         func(*node.Pressure) *node.Stall
}{
	{"cpu", "/proc/pressure/cpu", func(p *node.Pressure) *node.Stall { return &p.CPU }},
	{"memory", "/proc/pressure/memory", func(p *node.Pressure) *node.Stall { return &p.Memory }},
	{"io", "/proc/pressure/io", func(p *node.Pressure) *node.Stall { return &p.IO }},
}

func stallOf(p unit.Pressure) (s node.Stall) {
	if p.Some.Known {
		s.Some = node.Some(p.Some.Total)
	}
	if p.Full.Known {
		s.Full = node.Some(p.Full.Total)
	}
	return s
}

// Workload reads those counters of a workload that each snapshot needs fresh.
// gone is true if the workload's cgroup does not exist any more.
func (c *Counters) Workload(w node.Workload) (u node.Usage, gone bool) { return c.workload(&w, nil) }

// workload does the same as Workload. But if the workload has used no CPU since
// last was read, it returns last.
func (c *Counters) workload(w *node.Workload, last *node.Usage) (u node.Usage, gone bool) {
	p := string(w.Cgroup)
	var err error
	if c.throttlingIsSlow(w) {
		var used time.Duration
		if used, err = c.tree.CPUUsage(p); err == nil {
			u.CPU = node.Some(used)
		}
		c.faults.note("cpu.stat", p, err)
	} else {
		err = c.readCPUUse(&u, p)
	}
	if last != nil && u.CPU.Known() && u.CPU == last.CPU {
		return *last, false
	}
	if !c.throttlingIsSlow(w) {
		c.addThrottling(&u, w)
	}
	if errors.Is(err, cgroup.ErrGone) && !c.tree.Exists(p) {
		return u, true // gone from all v1 hierarchies
	}
	c.readMemory(&u, p)
	if w.Class.Sensitive() {
		u.PerCPU, _ = c.tree.UsagePerCPU(p) //nolint:errcheck // absent on v2
	}
	return u, false
}

// readMemory reads how much memory is charged to a workload. gone is true if
// its cgroup does not exist any more.
func (c *Counters) readMemory(u *node.Usage, p string) (gone bool) {
	m, err := c.tree.MemoryCurrent(p)
	c.faults.note("memory.current", p, err)
	if u.Memory = (node.Maybe[unit.Bytes]{}); err == nil {
		u.Memory = node.Some(m)
	}
	return errors.Is(err, cgroup.ErrGone) && !c.tree.Exists(p)
}

// addThrottling adds the throttling of a service's containers. The workload's
// own counters do not show it if only the limit of one container throttles. If
// there is one container, it has the same limit as the workload, and nothing is
// added. If the workload has no limit, only containers with a limit are added.
func (c *Counters) addThrottling(u *node.Usage, w *node.Workload) {
	if w.Class != node.LS || len(w.Containers) < 2 || !u.Periods.Known() {
		return
	}
	for _, part := range w.Containers {
		if !w.CPULimit.Known() && !part.CPULimit.Known() {
			continue
		}
		c, err := c.tree.CPUUse(string(part.Cgroup))
		if errors.Is(err, cgroup.ErrGone) {
			continue
		}
		if c.QuotaErr != nil { // a sum without this part would be too small
			u.Throttled, u.Periods, u.ThrottledPeriods = node.Maybe[time.Duration]{}, node.Maybe[int64]{}, node.Maybe[int64]{}
			return
		}
		if err == nil {
			u.Throttled = node.Some(u.Throttled.Or(0) + c.Throttled)
			u.Periods = node.Some(u.Periods.Or(0) + c.Periods)
			u.ThrottledPeriods = node.Some(u.ThrottledPeriods.Or(0) + c.ThrottledPeriods)
		}
	}
}

// throttlingIsSlow reports whether throttling is a slow counter. On cgroup v2,
// it is in the same file as the CPU time. On v1 it is in another file, which
// each snapshot reads only for latency-sensitive workloads.
func (c *Counters) throttlingIsSlow(w *node.Workload) bool {
	return c.slow != nil && !w.Class.Sensitive() && c.tree.VersionOf("cpu") == 1
}

func (c *Counters) readCPUUse(u *node.Usage, p string) error {
	use, err := c.tree.CPUUse(p)
	if err == nil {
		u.CPU = node.Some(use.Usage)
	}
	if use.QuotaErr == nil {
		u.Throttled, u.Periods, u.ThrottledPeriods = node.Some(use.Throttled), node.Some(use.Periods), node.Some(use.ThrottledPeriods)
	}
	c.faults.note("cpu.stat", p, cmp.Or(err, use.QuotaErr))
	return err
}
