// Package bescheduler loads the BPF scheduler of best-effort threads on the
// real node, gives it the orders of cgroups, and reports how it ended. Loading
// does not block the loop.
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

// reloadsAtOnce is the maximum number of loads after a change of the CPUs. Each
// other CPU that goes offline meanwhile may end the scheduler again.
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
// the loop. None of them may be nil. During such a call, the Scheduler holds
// none of its locks.
type Events struct {
	Stray    func(scx.Stray)               // a best-effort cgroup has a thread outside the scheduler
	LongWait func(scx.LongWait)            // a thread has waited so long that the kernel would end the scheduler
	Loaded   func()                        // a scheduler is loaded
	Failed   func(refused bool, why error) // the scheduler could not be loaded, or has ended
	Wake     func(text string)             // the loop should tick at once
}

// Options hold the parts of a node that a Scheduler needs.
type Options struct {
	Kernel   Kernel // nil: the kernel of this machine
	Tree     *cgroup.Tree
	Topology *topology.Cache
	Resident bool             // load in a goroutine of its own
	Now      func() time.Time // on the clock of the snapshots
	Inode    func(node.CgroupPath) (uint64, error)
	On       Events
}

// Knob is the knob of the BPF scheduler.
var Knob = node.Knob{File: node.FileScheduler}

// A Scheduler loads and unloads the BPF scheduler of this process, and holds
// its orders. A Scheduler exists even while no BPF scheduler is loaded. It is
// safe for concurrent use.
type Scheduler struct {
	kernel   Kernel
	tree     *cgroup.Tree
	topology *topology.Cache
	resident bool
	now      func() time.Time
	inode    func(node.CgroupPath) (uint64, error)
	on       Events

	mu      sync.Mutex
	loading bool    // a load, or the drop of an unwanted one, is in progress
	loaded  Program // nil: none
	want    node.Scheduler
	closed  bool // no further loads
	as      node.Scheduler
	orders  orders
	status  node.IsolationStatus // of the scheduler only
}

// New returns the scheduler of a node. It loads none.
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
// may take a minute. Such a scheduler is dropped after its load, or ends with
// this process.
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

// HasRoom reports whether a CPU is free for a thread. If no scheduler is
// loaded, it returns true.
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

// Unload unloads the scheduler if this process has loaded one or is loading
// one. It reports whether there was one. It is for a loop that hangs, and
// cannot give orders any more. The next snapshot shows that no scheduler is
// loaded.
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

// Read returns what this process has loaded. A scheduler of another component
// does not count.
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
		p.Hold = -1 // Hold is none, and not the default
	}
	return p
}

// cpusOf converts the CPUs of a topology. It numbers cores, caches and NUMA
// nodes from 0.
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

// takeDown unloads a scheduler. The threads that it scheduled then continue in
// the fair class.
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

// recordEnd records that a scheduler has ended. It returns false if
// this was not the loaded one.
func (x *Scheduler) recordEnd(s Program) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.loaded != s {
		return false
	}
	x.loaded, x.orders.refused = nil, nil
	return true
}

// follow handles the requests of the scheduler, in a goroutine of its own,
// until the scheduler ends.
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

// handleExit records that a scheduler ended unexpectedly. If the only reason
// was a change of the set of CPUs, handleExit loads it again with its orders.
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

// reload loads the scheduler for the present CPUs, if it is still wanted. The
// kernel refuses a load while CPUs go online or offline.
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

// reasonOf says in one line why the scheduler ended.
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
