package host

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	workloads []job
	inodes    map[node.CgroupPath]uint64
	limits    map[node.Knob]node.Value // cpu.max and cpu.weight of best-effort work, and where it meets others
}

// A job is what of a workload matters to it: a view is made in each turn.
type job struct {
	id           node.WorkloadID
	class        node.Class
	cgroup, meet node.CgroupPath
	identity     node.Maybe[node.Identity] // that its owner asks for
}

// told is what the scheduler was told last.
type told struct {
	groups []scx.Group
	pods   []scx.Pod
	cap    unit.MilliCPU // 0: nothing
}

// mirror keeps what a snapshot shows for the scheduler, says that this process
// lives, and tells what is new. Without a scheduler it does nothing.
func (h *Host) mirror(s *node.Snapshot) {
	i := &h.isolation
	i.mu.Lock()
	loaded, old := i.scheduler.loaded, i.scheduler.view
	i.mu.Unlock()
	if loaded == nil {
		return
	}
	v := h.viewOf(s.Workloads, func(k node.Knob) node.Value {
		if now := s.Knobs.Now[k]; now != nil {
			return now
		}
		return old.limits[k] // it could not be read now, which lifts no limit
	})
	i.mu.Lock()
	i.scheduler.view = v
	i.mu.Unlock()
	h.told(loaded, errors.Join(loaded.Beat(), h.tell(loaded)))
}

// lookAtWork makes the view of a scheduler that is about to be loaded.
func (h *Host) lookAtWork() {
	v := h.viewOf(h.managed(), h.knobOrNil)
	h.isolation.mu.Lock()
	defer h.isolation.mu.Unlock()
	h.isolation.scheduler.view = v
}

// viewOf is the view of workloads whose groups live, with the limits that are
// found.
func (h *Host) viewOf(workloads []node.Workload, limit func(node.Knob) node.Value) view {
	v := view{
		workloads: make([]job, 0, len(workloads)),
		inodes:    make(map[node.CgroupPath]uint64, len(workloads)), limits: make(map[node.Knob]node.Value, 2*len(workloads)),
	}
	note := func(p node.CgroupPath, limits bool) bool {
		if _, known := v.inodes[p]; !known {
			inode, err := h.inode(p)
			if err != nil {
				return false
			}
			v.inodes[p] = inode
		}
		for _, f := range []node.File{node.FileCPUMax, node.FileCPUWeight} {
			k := node.Knob{Cgroup: p, File: f}
			if _, known := v.limits[k]; known || !limits {
				continue
			}
			if now := limit(k); now != nil {
				v.limits[k] = now
			}
		}
		return true
	}
	for _, w := range workloads {
		if !note(w.Cgroup, w.Class == node.BE) {
			continue
		}
		v.workloads = append(v.workloads, job{w.ID, w.Class, w.Cgroup, w.Meet, w.Asks.Identity})
		if w.Class == node.BE && w.Meet != "" {
			note(w.Meet, true)
		}
	}
	h.isolation.mu.Lock()
	given := slices.Collect(maps.Keys(h.isolation.given))
	h.isolation.mu.Unlock()
	for _, k := range given {
		note(k.Cgroup, true)
	}
	return v
}

// told remembers what the scheduler did not take of what it was told last, and
// says so once: a table may be full. What fails because it has ended is for
// follow to tell.
func (h *Host) told(s extScheduler, err error) {
	text := ""
	if err != nil && !errors.Is(err, scx.ErrClosed) {
		text = strings.Join(strings.Fields(err.Error()), " ")
	}
	i := &h.isolation
	i.mu.Lock()
	if n := i.scheduler.unseated; n > 0 && text == "" {
		text = fmt.Sprintf("%s without a quota and a weight: there are %d slots", count(n, "workload", "workloads"), scx.Slots-1)
	}
	if i.scheduler.loaded != s {
		text = ""
	}
	before := i.status.Untold
	i.status.Untold = text
	i.mu.Unlock()
	if text != "" && text != before {
		h.wake("the scheduler does not take all that it is told: " + text)
	}
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
		h.told(loaded, h.tell(loaded))
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
// any; those who come later share the first, that has no quota, and are counted.
func (x *scheduler) seat() {
	here := map[node.WorkloadID]bool{}
	for _, w := range x.view.workloads {
		here[w.id] = w.class == node.BE
	}
	maps.DeleteFunc(x.slots, func(id node.WorkloadID, _ int) bool { return !here[id] })
	var taken [scx.Slots]bool
	for _, slot := range x.slots {
		taken[slot] = true
	}
	next := 1
	x.unseated = 0
	for _, w := range x.view.workloads {
		if _, seated := x.slots[w.id]; seated || w.class != node.BE {
			continue
		}
		for next < scx.Slots && taken[next] {
			next++
		}
		if next == scx.Slots {
			x.unseated++
			continue
		}
		if x.slots == nil {
			x.slots = map[node.WorkloadID]int{}
		}
		x.slots[w.id], taken[next] = next, true
	}
}

// groups classifies the workloads, and what is between them and the groups
// whose threads are best-effort ones. Those whose threads are spared are
// nobody's. i.mu is held.
func (i *isolation) groups() []scx.Group {
	x := &i.scheduler
	by := map[uint64]scx.Group{}
	for k := range i.given {
		if inode, known := x.view.inodes[k.Cgroup]; known && k.File == node.FilePolicy && i.governs(k.Cgroup) {
			by[inode] = scx.Group{Cgroup: inode, Class: scx.BE}
		}
	}
	for _, w := range x.view.workloads {
		inode, known := x.view.inodes[w.cgroup]
		if !known {
			continue
		}
		g := scx.Group{Cgroup: inode}
		switch {
		case w.class == node.BE:
			// Where nothing was given to its threads, none of them is a stray.
			if i.governs(w.cgroup) {
				g.Class, g.Pod = scx.BE, x.slots[w.id]
			}
		case i.spares(w.cgroup):
		case w.identity.Or(node.IdentityExpels) == node.IdentityNone:
		case x.expels(w):
			g.Class = scx.LSX
		case w.class.Sensitive():
			g.Class = scx.LS
		}
		by[inode] = g
	}
	// Those to be protected first: what finds no room in the table is Normal,
	// and best-effort threads may run beside it.
	return slices.SortedFunc(maps.Values(by), func(a, b scx.Group) int {
		return cmp.Or(cmp.Compare(b.Class, a.Class), cmp.Compare(a.Cgroup, b.Cgroup))
	})
}

// expels reports whether best-effort threads stay off the siblings of a
// workload's: as its owner says, or else as for its class.
func (x *scheduler) expels(w job) bool {
	if v, asked := w.identity.Value(); asked {
		return x.as.Loaded && x.as.Siblings && w.class.Sensitive() && v >= node.IdentityExpels
	}
	return x.as.Expels(w.class)
}

// governs reports whether the threads of best-effort work in a group have the
// policy; i.mu is held.
func (i *isolation) governs(p node.CgroupPath) bool {
	governed := false
	for ; p != ""; p = p.Parent() {
		if class, is := i.own[p]; is && class != node.BE {
			break
		}
		if i.spares(p) {
			return false
		}
		governed = governed || i.given[node.Knob{Cgroup: p, File: node.FilePolicy}]
	}
	return governed
}

// pods are the weights and quotas of best-effort workloads.
func (x *scheduler) pods() []scx.Pod {
	var all []scx.Pod
	parts := x.view.parts()
	for _, w := range x.view.workloads {
		slot := x.slots[w.id]
		if slot == 0 {
			continue
		}
		pod := scx.Pod{Slot: slot, Weight: usualWeight}
		if weight, is := x.view.limits[node.Knob{Cgroup: w.cgroup, File: node.FileCPUWeight}].(node.CPUWeight); is && !weight.Idle {
			pod.Weight = int(weight.Weight.V2())
		}
		most, limited := x.view.quota(w.cgroup)
		if part, is := parts[w.meet]; is && (!limited || part < most) {
			most, limited = part, true
		}
		if limited {
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
	meets := v.meets()
	for m := range meets {
		most, limited := v.quota(m)
		if !limited {
			return scx.NoCap
		}
		sum += most
	}
	if len(meets) == 0 {
		return scx.NoCap
	}
	return max(sum, 1)
}

// meets counts the best-effort workloads by where they meet others.
func (v view) meets() map[node.CgroupPath]int {
	of := map[node.CgroupPath]int{}
	for _, w := range v.workloads {
		if w.class == node.BE {
			of[w.meet]++
		}
	}
	return of
}

// parts is how much each best-effort workload may have of the quota of where it
// meets others, in equal parts, unless the cap of all sees to these.
func (v view) parts() map[node.CgroupPath]unit.MilliCPU {
	if v.most() != scx.NoCap {
		return nil
	}
	of := map[node.CgroupPath]unit.MilliCPU{}
	for m, n := range v.meets() {
		if most, limited := v.quota(m); limited {
			of[m] = max(most/unit.MilliCPU(n), 1)
		}
	}
	return of
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
