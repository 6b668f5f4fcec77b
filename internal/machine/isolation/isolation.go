// Package isolation keeps best-effort threads off the CPUs of latency-sensitive
// ones, by mechanisms of the kernel. It reads and writes the knobs of these
// mechanisms, and reports when a mechanism fails.
package isolation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/machine/topology"
	"tenon.sh/tenon/internal/machine/vendormark"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// failuresKept is the time for which snapshots show a mechanism failure.
	// failuresShown is the maximum number of failures that they show.
	failuresKept  = time.Hour
	failuresShown = 32
	// eventsKept is the capacity of the channel of events. If it is full, new
	// events are dropped. That is harmless: the other events already wake the loop.
	eventsKept = 16
	// sameFailure is the time for which further refusals of a mechanism are
	// ignored after the first one, because one tick writes many knobs.
	sameFailure = 5 * time.Second
)

// Isolation reads and writes the isolation knobs of a node. Of the knobs of
// threads, it reads only those that Tenon has set, because to read all threads
// would be the main cost of isolation. It is safe for concurrent use.
type Isolation struct {
	fs        proc.FS
	tree      *cgroup.Tree // nil: this machine has no usable cgroups
	journal   *journal.Journal
	marks     *vendormark.Marks
	scheduler *bescheduler.Scheduler
	exempt    *Exempt
	policies  Policies
	cookies   *cookies
	// attributes holds the attribute of each knob of threads.
	attributes map[node.File]attribute
	resident   bool
	now        func() time.Time
	forget     func(node.Knob) // drops a knob from the knob cache
	wakes      chan Event

	mu        sync.Mutex
	wanted    map[node.File]bool // knobs that snapshots show; all before the first Show
	classes   map[node.CgroupPath]node.Class
	used      map[node.CgroupPath]time.Duration // CPU time of the workloads of the last snapshot
	converted map[node.Knob]bool                // thread knobs that Tenon has set
	seen      map[node.Knob]node.Value          // the values of the knobs in converted, as last read
	tops      map[node.CgroupPath]time.Duration // CPU time of the knobs' cgroups, read before used
	tallies   tallies
	children  map[node.CgroupPath][]string // cached children of cgroups; cleared when cgroups come or go
	stale     bool                         // the next snapshot counts all threads again
	changed   bool                         // cgroups came or went: the next snapshot reads all knobs in seen again
	reads     reread.Cycle                 // which knobs in seen are due
	leftAlone map[node.Knob]int            // number of threads that Tenon does not change: real-time, or with their own slice
	checked   checkedWorks                 // cgroups of other classes whose threads were checked
	checks    reread.Cycle                 // which cgroups in checked are due
	demoted   map[int]time.Time            // thread ID to the end of its demotion
	recheck   map[node.File]time.Time      // when recheckReleased checks an attribute
	others    otherComponents
	failures  []node.Failure
	status    node.IsolationStatus // the status without the counters of the scheduler
}

// A Kernel gives access to the parts of the kernel that isolation uses. A nil
// field stands for the kernel of this machine.
type Kernel struct {
	SchedExt bescheduler.Kernel
	Policies Policies
	Cores    Cores
}

// Options are the other parts of a node that isolation needs.
type Options struct {
	FS       proc.FS
	Tree     *cgroup.Tree // nil: the node has no usable cgroups
	Journal  *journal.Journal
	Topology *topology.Cache
	Marks    *vendormark.Marks
	Resident bool             // cache thread attributes, and load the scheduler in the background
	Now      func() time.Time // the clock that snapshots also use
	Inode    func(node.CgroupPath) (uint64, error)
	Forget   func(node.Knob) // makes the next snapshot read a knob
	Kernel   Kernel
}

// New returns the isolation of a node. It writes nothing.
func New(o Options) *Isolation {
	i := &Isolation{
		fs: o.FS, tree: o.Tree, journal: o.Journal, marks: o.Marks, resident: o.Resident, now: o.Now, forget: o.Forget,
		policies: o.Kernel.Policies, wakes: make(chan Event, eventsKept),
		wanted:  map[node.File]bool{},
		classes: map[node.CgroupPath]node.Class{}, converted: map[node.Knob]bool{}, seen: map[node.Knob]node.Value{}, tallies: tallies{}, children: map[node.CgroupPath][]string{},
		leftAlone: map[node.Knob]int{}, demoted: map[int]time.Time{},
		recheck: map[node.File]time.Time{},
	}
	if i.policies == nil {
		i.policies = kernelPolicies{}
	}
	for _, f := range isolating {
		i.wanted[f] = true
	}
	i.cookies = newCookies(o.Kernel.Cores, i.withCookies)
	i.attributes = attributesOf(i)
	i.exempt = newExempt(o.Tree, o.Journal, i.makeFair, i.exemptionEnded)
	i.scheduler = bescheduler.New(bescheduler.Options{
		Kernel: o.Kernel.SchedExt, Tree: o.Tree, Topology: o.Topology, Resident: o.Resident, Now: o.Now, Inode: o.Inode,
		On: bescheduler.Events{
			Stray: i.convertStray, LongWait: i.demote, Loaded: i.Expire, Wake: i.wake,
			Failed: func(refused bool, why error) { i.fail(node.MechanismSchedExt, refused, why) },
		},
	})
	return i
}

// An Event wakes the loop: a mechanism failed, or threads left isolation.
type Event struct {
	At   time.Time
	Text string
}

// Events returns the channel of events, which is never closed. An event is
// dropped if the channel is full.
func (i *Isolation) Events() <-chan Event { return i.wakes }

// Scheduler returns the BPF scheduler of best-effort threads.
func (i *Isolation) Scheduler() *bescheduler.Scheduler { return i.scheduler }

// Exempt returns the cgroups that are exempt from isolation.
func (i *Isolation) Exempt() *Exempt { return i.exempt }

// makeFair moves the threads of a cgroup from sched_ext to the fair class. In
// sched_ext they would run later, or the kernel would take the scheduler for
// stalled.
func (i *Isolation) makeFair(p node.CgroupPath) error {
	i.mu.Lock()
	clear(i.tallies)
	governed := slices.ContainsFunc(slices.Collect(maps.Keys(i.converted)), func(k node.Knob) bool {
		return k.File == node.FilePolicy && (k.Cgroup.Contains(p) || p.Contains(k.Cgroup))
	})
	i.mu.Unlock()
	if !governed {
		return nil
	}
	_, err := i.policies.Shorten(func() ([]int, error) { return subtree.Threads(i.tree, p) })
	return err
}

// exemptionEnded makes the next snapshot read the real knob values of a cgroup
// that is not exempt any more.
func (i *Isolation) exemptionEnded(p node.CgroupPath, notIdle bool) {
	i.Expire()
	again := i.marks.Remark(p)
	if notIdle {
		again = append(again, node.Knob{Cgroup: p, File: node.FileCPUWeight})
	}
	for _, k := range again {
		i.forget(k)
	}
}

// Has reports whether a knob belongs to isolation and is not in the knob cache.
func Has(k node.Knob) bool {
	return k == vendormark.Switch || k.File == node.FileScheduler || k.File.OfThreads() || k.File.OrdersScheduler()
}

// isolating lists the knobs of mechanisms and the time slice.
var isolating = node.FilesOf(node.CategoryMark, node.CategoryScheduler, node.CategoryThreads)

// Adapters returns the adapters of the knobs of isolation.
func (i *Isolation) Adapters() knob.Table {
	all := knob.Table{}
	for _, f := range isolating {
		all[f] = knob.Adapter{Read: i.read, Write: i.write}
	}
	for _, f := range node.FilesOf(node.CategoryOrder) {
		all[f] = knob.Adapter{Read: i.scheduler.ReadOrder, Write: i.scheduler.Order}
	}
	return all
}

// Show records which isolation knobs snapshots must contain, and returns the other
// elements of files. If this kernel has vendor marks, their file is among these.
func (i *Isolation) Show(files []node.File, can node.Capabilities) []node.File {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wanted = map[node.File]bool{}
	return slices.DeleteFunc(slices.Clone(files), func(f node.File) bool {
		switch f.Category() {
		case node.CategoryScheduler, node.CategoryThreads, node.CategoryOrder:
			i.wanted[f] = true
			return true
		case node.CategoryMark:
			i.wanted[f] = true
			return !can.CanMark()
		}
		return false
	})
}

// Expire makes the next snapshot check all threads again, because new threads
// may lack the attributes of best-effort threads.
func (i *Isolation) Expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stale = true
	i.children = map[node.CgroupPath][]string{}
}

// CgroupsChanged makes the next snapshot read all thread knobs again, because
// cgroups came or went. That snapshot lists the threads only of cgroups that
// are new, have another class, or have run since the last listing.
func CgroupsChanged(i *Isolation) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.changed = true
	i.children = map[node.CgroupPath][]string{}
}

// Close unloads the scheduler, and gives up the cookie of best-effort threads.
func (i *Isolation) Close() {
	i.scheduler.Close()
	i.cookies.unused()
}

// Status returns the state of the isolation mechanisms, and their counters
// since New. Those of the scheduler are since its load.
func (i *Isolation) Status() node.IsolationStatus {
	all := i.scheduler.Status()
	i.mu.Lock()
	defer i.mu.Unlock()
	all.Strays, all.Converted, all.Demotions, all.Demoted = i.status.Strays, i.status.Converted, i.status.Demotions, len(i.demoted)
	for k, n := range i.leftAlone {
		switch k.File {
		case node.FilePolicy:
			all.Realtime += n
		case node.FileSlice:
			all.OwnSlices += n
		}
	}
	return all
}

// fail records a mechanism failure and wakes the loop.
func (i *Isolation) fail(r node.Mechanism, refused bool, why error) {
	text := strings.Join(strings.Fields(why.Error()), " ")
	f := node.Failure{At: i.now(), Mechanism: r, Why: text, Refused: refused}
	i.mu.Lock()
	if n := len(i.failures); refused && n > 0 && i.failures[n-1].Mechanism == r && f.At.Sub(i.failures[n-1].At) < sameFailure {
		i.mu.Unlock()
		return
	}
	i.failures = append(i.failures, f)
	i.failures = i.failures[max(len(i.failures)-failuresShown, 0):]
	i.mu.Unlock()
	i.wake(fmt.Sprintf("%s failed: %s", r, text))
}

func (i *Isolation) wake(text string) {
	select {
	case i.wakes <- Event{At: time.Now(), Text: text}:
	default:
	}
}

// Fill adds the isolation knobs and the mechanism failures to a snapshot. It
// writes nothing to the kernel.
func (i *Isolation) Fill(s *node.Snapshot, touches map[node.Knob]journal.Touch) {
	loaded := i.scheduler.Loaded()
	i.mu.Lock()
	given := map[node.Knob]bool{}
	for k, t := range touches {
		if k.File.OfThreads() && mayHave(t) {
			given[k] = true
		}
	}
	i.converted = given
	wanted := len(i.wanted) > 0
	idle := !wanted && len(given) == 0 && !loaded && len(i.recheck) == 0
	if idle {
		i.mu.Unlock()
		return
	}
	classes := make(map[node.CgroupPath]node.Class, len(s.Workloads))
	i.used = make(map[node.CgroupPath]time.Duration, len(s.Workloads))
	for n := range s.Workloads {
		w := &s.Workloads[n]
		classes[w.Cgroup] = w.Class
		if used, counted := w.Usage.CPU.Value(); counted {
			i.used[w.Cgroup] = used
		}
	}
	if !maps.Equal(classes, i.classes) {
		dropTallies(i, classes)
	}
	i.classes = classes
	if i.stale {
		i.marks.DropGone()
	}
	i.failures = slices.DeleteFunc(i.failures, func(f node.Failure) bool { return s.At.Sub(f.At) > failuresKept })
	s.Isolation.Failures = slices.Clone(i.failures)
	showsScheduler := i.wanted[node.FileScheduler] && s.Capabilities.Has(node.FeatureSchedExt)
	i.mu.Unlock()

	if _, touched := touches[bescheduler.Knob]; showsScheduler || touched {
		s.Knobs.Now[bescheduler.Knob], _ = i.scheduler.Read() //nolint:errcheck // no value: not known
		i.scheduler.FillOrders(s.At, s.Knobs.Now)
	}
	i.verifyThreads(s.At, s.Knobs.Now)
	if wanted {
		i.lookForOthers(s)
	}
}

// read reads an isolation knob.
func (i *Isolation) read(k node.Knob) (node.Value, error) {
	switch {
	case k.File == node.FileScheduler:
		return i.scheduler.Read()
	case k.File.OfThreads():
		return i.readThreads(k)
	case k.File.OrdersScheduler():
		return i.scheduler.ReadOrder(k)
	}
	return i.marks.Read(k)
}

// write writes an isolation knob. If the kernel refuses the write and the
// cgroup still exists, write records a mechanism failure.
func (i *Isolation) write(k node.Knob, v node.Value) error {
	var err error
	switch v := v.(type) {
	case node.Scheduler:
		err = i.scheduler.Write(v)
	case node.Threads:
		err = i.writeThreads(k, v)
	case node.Identity:
		err = i.marks.Write(k, v)
	default:
		return fmt.Errorf("write %v: a %T is no value of this file", k, v)
	}
	if m := node.MechanismOf(k.File); m != "" && isFailure(v, err, i.scheduler.Loaded()) {
		i.fail(m, true, err)
	}
	return err
}

// isFailure reports whether err means that the kernel refuses the whole
// mechanism. An error about one cgroup or thread does not mean this, because
// the cgroup or thread may be gone in the next tick. loaded reports whether a
// BPF scheduler is loaded.
func isFailure(v node.Value, err error, loaded bool) bool {
	if err == nil || errors.Is(err, cgroup.ErrGone) {
		return false
	}
	switch v := v.(type) {
	case node.Scheduler:
		// If the error came because the loaded scheduler has ended, this write
		// has not failed. follow reports the end.
		return v.Loaded && !loaded && !errors.Is(err, scx.ErrClosed) && !errors.Is(err, bescheduler.ErrLoading)
	case node.Threads:
		return v == node.ThreadsBE && errors.Is(err, task.ErrUnsupported)
	case node.Identity:
		return v != node.IdentityNone && !errors.Is(err, cgroup.ErrUnsupported) // one cgroup may lack the file
	}
	return false
}
