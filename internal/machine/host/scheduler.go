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

// reloadsAtOnce is how often the scheduler is loaded anew after one change of
// the CPUs: each that goes may end it again.
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

// extMeans is what sched_ext takes: packages scx and task.
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
		return nil, err // and no pointer to nothing
	}
	return s, nil
}

func (kernelExt) extend(l task.List, spare func(int) bool) (int, error) { return task.Extend(l, spare) }

func (kernelExt) shorten(l task.List) (int, error) { return task.Shorten(l) }

func (kernelExt) count(tids []int) (task.Policies, error) { return task.CountPolicies(tids) }

// scheduler is the one that this process has loaded, and its orders.
type scheduler struct {
	loading bool         // one is being loaded, or dropped again
	loaded  extScheduler // nil: none
	want    node.Scheduler
	closed  bool // none is loaded any more
	as      node.Scheduler
	orders  orders
}

// readScheduler says what this process has loaded. Others' is not ours.
func (h *Host) readScheduler() (node.Value, error) {
	i := &h.isolation
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.scheduler.loaded == nil {
		return node.Scheduler{}, nil
	}
	return i.scheduler.as, nil
}

// writeScheduler loads the scheduler, changes how it works, or unloads it. For
// a resident host, whose loop must not stand still, it is loaded by the way: see
// ErrLoading.
func (h *Host) writeScheduler(v node.Scheduler) error {
	i := &h.isolation
	i.mu.Lock()
	i.scheduler.want = v // of which also those learn who load it at this moment
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
		p.Hold = -1 // none, and not the default
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

// unload takes the scheduler down. Its threads go on in the fair class.
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

// left notes that a scheduler is no more, if it was the one.
func (i *isolation) left(s extScheduler) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.scheduler.loaded != s {
		return false
	}
	i.scheduler.loaded, i.scheduler.orders.refused = nil, nil
	return true
}

// follow does what the scheduler asks for between the turns of the loop, until
// it ends.
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

// exited notes the end of a scheduler that was not asked for. Where only the
// CPUs are others now it is loaded anew, with the orders that it had.
func (h *Host) exited(s extScheduler, e scx.Exit) {
	i := &h.isolation
	last := h.lastStatus(s)
	if !i.left(s) {
		return // it was asked for
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
	h.fall(node.RungSchedExt, false, errors.New(why))
}

// reload loads the scheduler for the CPUs that there are now, if it is still
// wanted. While they still come and go the kernel does not take it.
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

// reasonOf says why it ended, in one line.
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
