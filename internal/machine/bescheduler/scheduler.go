// Package bescheduler loads the BPF scheduler of best-effort threads on the
// real node, gives it the orders of cgroups, and reports how it ended. It loads
// the scheduler in the background.
package bescheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/machine/topology"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A CPU may go offline while the scheduler is loaded again for another CPU. Therefore
// there are reloadsAtOnce attempts to load, with the pause reloadPause in between.
const (
	reloadsAtOnce = 5
	reloadPause   = 200 * time.Millisecond
)

// A Program is a loaded scheduler of best-effort threads. Package scx
// implements it.
type Program interface {
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

// A Kernel loads schedulers. Package scx implements it.
type Kernel interface {
	Load(scx.Options) (Program, error)
}

type kernelSchedExt struct{}

func (kernelSchedExt) Load(o scx.Options) (Program, error) {
	s, err := scx.Load(o)
	if err != nil {
		return nil, err // not a typed nil pointer
	}
	return s, nil
}

// Events are functions that a Scheduler calls when something happens outside
// the loop. None of them may be nil. They may call the Scheduler, which holds
// none of its locks then.
type Events struct {
	Stray    func(scx.Stray)               // a thread of a best-effort cgroup is outside the scheduler
	LongWait func(scx.LongWait)            // a thread has waited so long that the kernel would end the scheduler
	Loaded   func()                        // a scheduler is loaded
	Failed   func(refused bool, why error) // the scheduler could not be loaded, or has ended
	Wake     func(text string)             // the loop should tick at once
}

// Options are the parts of a node that a Scheduler uses, and its Events.
type Options struct {
	Kernel   Kernel // nil: the kernel of this machine
	Tree     *cgroup.Tree
	Topology *topology.Cache
	Resident bool             // Write does not wait for a load
	Now      func() time.Time // the clock that snapshots also use
	Inode    func(node.CgroupPath) (uint64, error)
	On       Events
}

// Knob is the knob whose value is the loaded BPF scheduler, or none.
var Knob = node.Knob{File: node.FileScheduler}

// A Scheduler loads and unloads the BPF scheduler of this process, and keeps
// the orders for it. One Scheduler serves any number of loads. It is safe for
// concurrent use.
type Scheduler struct {
	kernel   Kernel
	tree     *cgroup.Tree
	topology *topology.Cache
	resident bool
	now      func() time.Time
	inode    func(node.CgroupPath) (uint64, error)
	on       Events

	mu      sync.Mutex
	loading bool    // a scheduler is being loaded, or dropped after its load
	loaded  Program // nil: none
	want    node.Scheduler
	closed  bool // Close was called: nothing may be loaded any more
	as      node.Scheduler
	orders  orders
	status  node.IsolationStatus // only the fields about the scheduler are set
}

// New returns the Scheduler of a node. No BPF scheduler is loaded yet.
func New(o Options) *Scheduler {
	if o.Kernel == nil {
		o.Kernel = kernelSchedExt{}
	}
	return &Scheduler{
		kernel: o.Kernel, tree: o.Tree, topology: o.Topology, resident: o.Resident, now: o.Now, inode: o.Inode, on: o.On,
		status: node.IsolationStatus{Exits: map[node.ExitKind]uint64{}},
	}
}

// Close unloads the scheduler. It does not wait for a load in progress, which
// may take a minute. That scheduler is unloaded after the load, or at the end
// of this process.
func (x *Scheduler) Close() {
	x.mu.Lock()
	s := x.loaded
	x.loaded, x.closed = nil, true
	x.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
}

// Loaded reports whether a scheduler is loaded.
func (x *Scheduler) Loaded() bool { return x.program() != nil }

// Loading reports whether a load is in progress.
func (x *Scheduler) Loading() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.loading
}

// HasRoom reports whether a CPU that the thread may use had time for
// best-effort work. Without a loaded scheduler it returns true.
func (x *Scheduler) HasRoom(tid int) bool {
	s := x.program()
	return s == nil || s.HasRoom(tid)
}

// Beat sends the heartbeat to the scheduler. If none is loaded, it does
// nothing.
func (x *Scheduler) Beat() error {
	s := x.program()
	if s == nil {
		return nil
	}
	if err := s.Beat(); !errors.Is(err, scx.ErrClosed) { // follow reports the end of the scheduler
		return err
	}
	return nil
}

// Unload unloads the scheduler that this process has loaded or is loading. It
// reports whether there was one. Call it when the loop hangs, because the
// scheduler then gets no orders. The next snapshot shows no scheduler.
func (x *Scheduler) Unload() (bool, error) {
	s, loading := x.unwant()
	if s == nil {
		return loading, nil
	}
	return true, x.takeDown(s)
}

// program returns the loaded scheduler, or nil.
func (x *Scheduler) program() Program {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.loaded
}

// Read returns the parameters of the loaded scheduler. It ignores a scheduler
// that another component has loaded.
func (x *Scheduler) Read() (node.Value, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.loaded == nil {
		return node.Scheduler{}, nil
	}
	return x.as, nil
}

// Write loads the scheduler, changes its parameters, or unloads it. In tenond,
// it loads the scheduler in the background. Until the load ends, Write returns
// ErrLoading.
func (x *Scheduler) Write(v node.Scheduler) error {
	x.mu.Lock()
	x.want = v // a load in progress also reads this field
	s, as := x.loaded, x.as
	x.mu.Unlock()
	switch {
	case !v.Loaded && s == nil:
		return nil
	case !v.Loaded:
		return x.takeDown(s)
	case s == nil && x.resident:
		x.startLoading()
		return ErrLoading
	case s == nil:
		_, err := x.loadWanted()
		return err
	}
	return x.change(s, as, v)
}

func (x *Scheduler) params(v node.Scheduler) scx.Params {
	p := scx.Params{SMTRule: v.Siblings, Hold: v.Hold, Headroom: v.Headroom, Cap: capOf(x.presentCap())}
	if v.Hold == 0 {
		p.Hold = -1 // -1 turns Hold off; 0 would mean the default of scx
	}
	return p
}

// cpusOf converts the CPUs of a topology for package scx. It numbers cores,
// caches and NUMA nodes from 0, as scx requires.
func cpusOf(t node.Topology) []scx.CPU {
	cores, caches, nodes := map[node.CoreID]int{}, map[node.CacheID]int{}, map[node.NUMANode]int{}
	threads := map[node.CoreID]int{}
	var all []scx.CPU
	cpus := slices.SortedFunc(slices.Values(t.CPUs), func(a, b node.LogicalCPU) int { return cmp.Compare(a.ID, b.ID) })
	for _, c := range cpus {
		all = append(all, scx.CPU{
			ID: c.ID, Core: number(cores, c.Core), Thread: threads[c.Core], LLC: number(caches, c.L3), Node: number(nodes, c.NUMA),
		})
		threads[c.Core]++
	}
	return all
}

func number[K comparable](of map[K]int, k K) int {
	n, known := of[k]
	if !known {
		n = len(of)
		of[k] = n
	}
	return n
}

// takeDown unloads a scheduler. The kernel then runs its threads in the fair
// class.
func (x *Scheduler) takeDown(s Program) error {
	last := x.lastStatus(s)
	if !x.recordEnd(s) {
		return nil // it has ended meanwhile
	}
	err := s.Close()
	x.forgetOrders()
	x.ended(scx.Exit{Kind: scx.ExitUnload}, x.now(), last)
	return err
}

// recordEnd records that a scheduler has ended. It returns false if s is not
// the loaded scheduler.
func (x *Scheduler) recordEnd(s Program) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.loaded != s {
		return false
	}
	x.loaded, x.orders.refused = nil, nil
	return true
}

// follow handles the events of a scheduler until the scheduler ends. It runs in
// a goroutine of its own.
func (x *Scheduler) follow(s Program) {
	for e := range s.Events() {
		switch e := e.(type) {
		case scx.Stray:
			x.on.Stray(e)
		case scx.LongWait:
			x.on.LongWait(e)
		case scx.Exited:
			x.handleExit(s, e.Exit)
		}
	}
}

// handleExit records that a scheduler ended unexpectedly. If the reason was that a
// CPU went online or offline, it loads the scheduler again with its orders.
func (x *Scheduler) handleExit(s Program, e scx.Exit) {
	last := x.lastStatus(s)
	if !x.recordEnd(s) {
		return // the end was requested
	}
	x.ended(e, x.now(), last)
	why := reasonOf(e)
	if err := s.Close(); err != nil {
		why += fmt.Sprintf("; %v", err)
	}
	if e.Restart() {
		err := x.reload()
		if err == nil {
			x.on.Wake("the CPUs have changed, and the scheduler with them: " + why)
			return
		}
		why = fmt.Sprintf("%s, and it could not be loaded anew: %v", why, err)
	}
	x.forgetOrders()
	x.on.Failed(false, errors.New(why))
}

// reload loads the scheduler for the present CPUs, if it is still wanted. It
// tries again, because the kernel refuses a load while CPUs go online or offline.
func (x *Scheduler) reload() (err error) {
	for range reloadsAtOnce {
		_, err = x.loadWanted()
		if err == nil || errors.Is(err, scx.ErrUnsupported) || errors.Is(err, scx.ErrBusy) {
			return err
		}
		time.Sleep(reloadPause)
	}
	return err
}

// reasonOf returns one line that says why the scheduler ended.
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
