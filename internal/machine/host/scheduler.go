package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// reloadsAtOnce bounds the loads after a change of the CPUs: each CPU that goes
// offline may end the scheduler again.
const (
	reloadsAtOnce = 5
	reloadPause   = 200 * time.Millisecond
)

// An extScheduler is a loaded scheduler of best-effort threads: package scx.
type extScheduler interface {
	SetGroup(scx.Group) error
	DropGroup(cgroup uint64) error
	Group(cgroup uint64) (scx.Group, bool, error)
	SetPod(scx.Pod) error
	Pod(slot int) (scx.Pod, error)
	SetParams(scx.Params) error
	SetCap(unit.MilliCPU) error
	Status() (scx.Status, error)
	Events() <-chan scx.Event
	Beat() error
	HasRoom(tid int) bool
	Close() error
}

// extMeans is the access to sched_ext: packages scx and task.
type extMeans interface {
	load(scx.Options) (extScheduler, error)
	extend(list task.List, spare func(tid int) bool) (int, error)
	shorten(task.List) (int, error)
	count(tids []int) (task.Policies, error)
}

type kernelExt struct{}

func (kernelExt) load(o scx.Options) (extScheduler, error) {
	s, err := scx.Load(o)
	if err != nil {
		return nil, err // not a typed nil pointer
	}
	return s, nil
}

func (kernelExt) extend(l task.List, spare func(int) bool) (int, error) { return task.Extend(l, spare) }

func (kernelExt) shorten(l task.List) (int, error) { return task.Shorten(l) }

func (kernelExt) count(tids []int) (task.Policies, error) { return task.CountPolicies(tids) }

// scheduler is the BPF scheduler that this process has loaded, with its orders.
type scheduler struct {
	loading bool         // a load, or the drop of an unwanted one, is in progress
	loaded  extScheduler // nil: none
	want    node.Scheduler
	closed  bool // no further loads
	as      node.Scheduler
	orders  orders
}

// readScheduler returns what this process has loaded, not another component's
// scheduler.
func (h *Host) readScheduler() (node.Value, error) {
	i := &h.isolation
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.scheduler.loaded == nil {
		return node.Scheduler{}, nil
	}
	return i.scheduler.as, nil
}

// writeScheduler loads the scheduler, changes its parameters, or unloads it. A
// resident host loads it beside its loop: see ErrLoading.
func (h *Host) writeScheduler(v node.Scheduler) error {
	i := &h.isolation
	i.mu.Lock()
	i.scheduler.want = v // a load in progress also reads this
	s, as := i.scheduler.loaded, i.scheduler.as
	i.mu.Unlock()
	switch {
	case !v.Loaded && s == nil:
		return nil
	case !v.Loaded:
		return h.unload(s)
	case s == nil && h.sight != nil:
		h.startLoading()
		return ErrLoading
	case s == nil:
		_, err := h.loadWanted()
		return err
	}
	return h.change(s, as, v)
}

func (h *Host) params(v node.Scheduler) scx.Params {
	p := scx.Params{SMTRule: v.Siblings, Hold: v.Hold, Headroom: v.Headroom, Cap: capOf(h.isolation.cap())}
	if v.Hold == 0 {
		p.Hold = -1 // none, not the default
	}
	return p
}

// placesOf numbers cores, caches and NUMA nodes from 0.
func placesOf(t node.Topology) []scx.CPU {
	cores, caches, nodes := map[node.CoreID]int{}, map[node.CacheID]int{}, map[node.NUMANode]int{}
	threads := map[node.CoreID]int{}
	var all []scx.CPU
	cpus := slices.SortedFunc(slices.Values(t.CPUs), func(a, b node.LogicalCPU) int { return cmp.Compare(a.ID, b.ID) })
	for _, c := range cpus {
		all = append(all, scx.CPU{
			ID: c.ID, Core: place(cores, c.Core), Thread: threads[c.Core], LLC: place(caches, c.L3), Node: place(nodes, c.NUMA),
		})
		threads[c.Core]++
	}
	return all
}

func place[K comparable](of map[K]int, k K) int {
	n, known := of[k]
	if !known {
		n = len(of)
		of[k] = n
	}
	return n
}

// unload takes the scheduler down. Its threads continue in the fair class.
func (h *Host) unload(s extScheduler) error {
	last := h.lastStatus(s)
	if !h.isolation.left(s) {
		return nil // it has ended meanwhile
	}
	err := s.Close()
	h.isolation.forgetOrders()
	h.isolation.ended(scx.Exit{Kind: scx.ExitUnload}, h.now(), last)
	return err
}

// left records the end of a scheduler, if it was the loaded one.
func (i *isolation) left(s extScheduler) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.scheduler.loaded != s {
		return false
	}
	i.scheduler.loaded, i.scheduler.orders.refused = nil, nil
	return true
}

// follow serves the scheduler's requests beside the loop, until it ends.
func (h *Host) follow(s extScheduler) {
	for e := range s.Events() {
		switch e := e.(type) {
		case scx.Stray:
			h.convertStray(e)
		case scx.LongWait:
			h.spill(e)
		case scx.Exited:
			h.exited(s, e.Exit)
		}
	}
}

// exited records an unexpected end of a scheduler. If only the set of CPUs
// changed, the scheduler is loaded again with its orders.
func (h *Host) exited(s extScheduler, e scx.Exit) {
	i := &h.isolation
	last := h.lastStatus(s)
	if !i.left(s) {
		return // the end was requested
	}
	i.ended(e, h.now(), last)
	why := reasonOf(e)
	if err := s.Close(); err != nil {
		why += fmt.Sprintf("; %v", err)
	}
	if e.Restart() {
		err := h.reload()
		if err == nil {
			h.wake("the CPUs have changed, and the scheduler with them: " + why)
			return
		}
		why = fmt.Sprintf("%s, and it could not be loaded anew: %v", why, err)
	}
	i.forgetOrders()
	h.fall(node.MechanismSchedExt, false, errors.New(why))
}

// reload loads the scheduler for the present CPUs if it is still wanted. While
// CPUs go on- or offline the kernel refuses it.
func (h *Host) reload() (err error) {
	for range reloadsAtOnce {
		_, err = h.loadWanted()
		if err == nil || errors.Is(err, scx.ErrUnsupported) || errors.Is(err, scx.ErrBusy) {
			return err
		}
		time.Sleep(reloadPause)
	}
	return err
}

// reasonOf returns in one line why the scheduler ended.
func reasonOf(e scx.Exit) string {
	text := "the kernel ended the scheduler"
	if e.Kind == scx.ExitSelf {
		text = "the scheduler ended itself"
	}
	for _, part := range []string{e.Reason, e.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	if e.Code != 0 {
		text += fmt.Sprintf(" (code %#x)", uint64(e.Code))
	}
	return text
}
