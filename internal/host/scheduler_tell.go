package host

import (
	"errors"
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/scx"
	"tenon.sh/tenon/internal/unit"
)

// usualWeight is the weight of a pod whose own says nothing: it has none, or is
// idle as all of its class are.
const usualWeight = 100

// A view is what of a snapshot matters to the scheduler: the kernel applies
// neither the quotas nor the weights of cgroups to its threads.
type view struct {
	workloads []node.Workload
	inodes    map[node.CgroupPath]uint64
	limits    map[node.Knob]node.Value // cpu.max and cpu.weight of best-effort work, and where it meets others
}

// told is what the scheduler was told last.
type told struct {
	groups []scx.Group
	pods   []scx.Pod
	cap    unit.MilliCPU // 0: nothing
}

// mirror keeps what a snapshot shows for the scheduler, says that this process
// lives, and tells what is new.
func (h *Host) mirror(s *node.Snapshot) {
	i := &h.isolation
	i.mu.Lock()
	loaded := i.scheduler.loaded
	wanted := i.wanted[node.FileScheduler] && s.Can.Can(node.MechSchedExt)
	i.mu.Unlock()
	if loaded == nil && !wanted {
		return
	}
	v := view{workloads: s.Workloads, inodes: make(map[node.CgroupPath]uint64, len(s.Workloads)), limits: map[node.Knob]node.Value{}}
	note := func(p node.CgroupPath) {
		if _, known := v.inodes[p]; known {
			return
		}
		if inode, err := h.inode(p); err == nil {
			v.inodes[p] = inode
		}
		for _, f := range []node.File{node.FileCPUMax, node.FileCPUWeight} {
			k := node.Knob{Cgroup: p, File: f}
			if now := s.Knobs.Now[k]; now != nil {
				v.limits[k] = now
			}
		}
	}
	for _, w := range s.Workloads {
		note(w.Cgroup)
		if w.Class == node.BE && w.Meet != "" {
			note(w.Meet)
		}
	}
	i.mu.Lock()
	given := slices.Collect(maps.Keys(i.given))
	i.mu.Unlock()
	for _, k := range given {
		note(k.Cgroup)
	}
	i.mu.Lock()
	i.scheduler.view = v
	i.mu.Unlock()
	if loaded == nil {
		return
	}
	// What fails here fails because the scheduler has ended, which follow tells.
	_ = errors.Join(loaded.Beat(), h.tell(loaded))
}

// limited passes a quota or a weight on that was written, without waiting for
// the next snapshot.
func (h *Host) limited(k node.Knob, v node.Value) {
	if k.File != node.FileCPUMax && k.File != node.FileCPUWeight {
		return
	}
	i := &h.isolation
	i.mu.Lock()
	loaded := i.scheduler.loaded
	_, counts := i.scheduler.view.inodes[k.Cgroup]
	if counts && loaded != nil {
		i.scheduler.view.limits[k] = v
	}
	i.mu.Unlock()
	if counts && loaded != nil {
		_ = h.tell(loaded)
	}
}

// tell tells the scheduler what it does not know yet.
func (h *Host) tell(s extScheduler) error {
	i := &h.isolation
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.scheduler.loaded != s {
		return nil
	}
	x := &i.scheduler
	x.seat()
	var errs []error
	if groups := i.groups(); !slices.Equal(groups, x.told.groups) {
		err := s.Classify(groups)
		if err == nil {
			x.told.groups = groups
		}
		errs = append(errs, err)
	}
	if pods := x.pods(); !slices.Equal(pods, x.told.pods) {
		err := s.SetPods(pods)
		if err == nil {
			x.told.pods = pods
		}
		errs = append(errs, err)
	}
	if most := x.view.most(); most != x.told.cap {
		err := s.SetCap(most)
		if err == nil {
			x.told.cap = most
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// seat gives each best-effort workload a slot of its own, as long as there are
// any; those who come later share the first.
func (x *scheduler) seat() {
	here := map[node.WorkloadID]bool{}
	for _, w := range x.view.workloads {
		here[w.ID] = w.Class == node.BE
	}
	maps.DeleteFunc(x.slots, func(id node.WorkloadID, _ int) bool { return !here[id] })
	var taken [scx.Slots]bool
	for _, slot := range x.slots {
		taken[slot] = true
	}
	next := 1
	for _, w := range x.view.workloads {
		if _, seated := x.slots[w.ID]; seated || w.Class != node.BE {
			continue
		}
		for next < scx.Slots && taken[next] {
			next++
		}
		if next == scx.Slots {
			return
		}
		if x.slots == nil {
			x.slots = map[node.WorkloadID]int{}
		}
		x.slots[w.ID], taken[next] = next, true
	}
}

// groups classifies the workloads, and what is between them and the groups
// whose threads are best-effort ones. Those whose threads are spared are
// nobody's. i.mu is held.
func (i *isolation) groups() []scx.Group {
	x := &i.scheduler
	by := map[uint64]scx.Group{}
	for k := range i.given {
		if inode, known := x.view.inodes[k.Cgroup]; known && k.File == node.FilePolicy {
			by[inode] = scx.Group{Cgroup: inode, Class: scx.BE}
		}
	}
	for _, w := range x.view.workloads {
		inode, known := x.view.inodes[w.Cgroup]
		if !known {
			continue
		}
		g := scx.Group{Cgroup: inode}
		switch {
		case i.spared[w.Cgroup] != 0:
		case w.Class == node.BE:
			g.Class, g.Pod = scx.BE, x.slots[w.ID]
		case x.as.Expels(w.Class):
			g.Class = scx.LSX
		case w.Class.Sensitive():
			g.Class = scx.LS
		}
		by[inode] = g
	}
	return slices.SortedFunc(maps.Values(by), func(a, b scx.Group) int { return compareUint(a.Cgroup, b.Cgroup) })
}

func compareUint(a, b uint64) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

// pods are the weights and quotas of best-effort workloads.
func (x *scheduler) pods() []scx.Pod {
	var all []scx.Pod
	for _, w := range x.view.workloads {
		slot := x.slots[w.ID]
		if slot == 0 {
			continue
		}
		pod := scx.Pod{Slot: slot, Weight: usualWeight}
		if weight, is := x.view.limits[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUWeight}].(node.CPUWeight); is && !weight.Idle {
			pod.Weight = int(weight.Weight.V2())
		}
		if most, limited := x.view.quota(w.Cgroup); limited {
			pod.Quota = time.Duration(int64(most) * int64(scx.QuotaPeriod) / int64(unit.CPUs(1)))
		}
		all = append(all, pod)
	}
	slices.SortFunc(all, func(a, b scx.Pod) int { return a.Slot - b.Slot })
	return all
}

// most is how much CPU time best-effort work may have together: the quotas of
// where it meets others, if each of these has one.
func (v view) most() unit.MilliCPU {
	var sum unit.MilliCPU
	seen := map[node.CgroupPath]bool{}
	for _, w := range v.workloads {
		if w.Class != node.BE || seen[w.Meet] {
			continue
		}
		seen[w.Meet] = true
		most, limited := v.quota(w.Meet)
		if !limited {
			return scx.NoCap
		}
		sum += most
	}
	if len(seen) == 0 {
		return scx.NoCap
	}
	return max(sum, 1)
}

// quota is cpu.max of a cgroup; false: it has no limit.
func (v view) quota(p node.CgroupPath) (unit.MilliCPU, bool) {
	m, is := v.limits[node.Knob{Cgroup: p, File: node.FileCPUMax}].(node.CPUMax)
	if !is || m.Quota == node.NoQuota || m.Period <= 0 {
		return 0, false
	}
	return unit.MilliCPU(int64(m.Quota) * int64(unit.CPUs(1)) / int64(m.Period)), true
}

func (h *Host) capOfBE() unit.MilliCPU {
	h.isolation.mu.Lock()
	defer h.isolation.mu.Unlock()
	return h.isolation.scheduler.view.most()
}
