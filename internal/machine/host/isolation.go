package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// fallsKept is for how long a fall is told, and fallsTold how many are.
	fallsKept = time.Hour
	fallsTold = 32
	// rungEventsKept is how many wait for their reader; more say nothing new.
	rungEventsKept = 16
	// sameFall is for how long after a refusal further ones are the same fall:
	// one turn writes many knobs.
	sameFall = 5 * time.Second
)

// isolation is what a host does and remembers of the ladder's knobs. Knobs of
// threads that nobody has turned are not read: walking threads is what these
// rungs cost.
type isolation struct {
	ext   extMeans
	core  coreMeans
	wakes chan RungEvent

	mu     sync.Mutex
	wanted map[node.File]bool // that snapshots show; before the first Show all are
	own    map[node.CgroupPath]node.Class
	given  map[node.Knob]bool             // of threads, that are best-effort by our doing
	seen   map[node.Knob]node.Value       // of these, as read in their turn
	apart  map[node.Knob]int              // threads left as they are: real-time, or with a slice of their own
	spared map[node.CgroupPath]sparing    // whose threads stay normal: frozen, or about to end
	safe   map[node.CgroupPath]node.Class // of other classes, whose threads were looked at
	rounds lap                            // of these
	spills map[int]time.Time              // threads that are normal until then
	turn   lap                            // round seen
	stale  bool                           // all of seen is to be read anew
	asked  map[node.CgroupPath]asked      // marks that the kernel rounds

	scheduler scheduler
	cookies   coreCookie              // nil: no thread has ours
	bore      map[uint64]bool         // cookies of ours that best-effort threads had, since any was given
	late      map[node.File]time.Time // when all threads are looked at once more, after the last release
	foreign   foreign
	falls     []node.Fall
	status    node.IsolationStatus
}

// A RungEvent says that something has become of a rung which the loop should
// see at once: it failed, or threads strayed.
type RungEvent struct {
	At   time.Time
	Text string
}

// RungEvents delivers them as long as the host is open. Those that nobody reads
// are dropped.
func (h *Host) RungEvents() <-chan RungEvent { return h.isolation.wakes }

func newIsolation() isolation {
	return isolation{
		ext: kernelExt{}, core: kernelCore{}, bore: map[uint64]bool{}, wakes: make(chan RungEvent, rungEventsKept),
		wanted: map[node.File]bool{node.FileIdentity: true, node.FileScheduler: true, node.FilePolicy: true, node.FileCookie: true, node.FileSlice: true},
		own:    map[node.CgroupPath]node.Class{}, given: map[node.Knob]bool{}, seen: map[node.Knob]node.Value{},
		apart: map[node.Knob]int{}, spared: map[node.CgroupPath]sparing{}, spills: map[int]time.Time{},
		asked: map[node.CgroupPath]asked{}, status: node.IsolationStatus{Exits: map[node.ExitKind]uint64{}},
		late: map[node.File]time.Time{},
	}
}

// switchKnob stands for the switch of all marks, beside those of groups. No
// snapshot shows it: it follows from them.
var switchKnob = node.Knob{File: node.FileIdentity}

// schedulerKnob is the scheduler's.
var schedulerKnob = node.Knob{File: node.FileScheduler}

// isolates reports whether a knob is one that the sight knows nothing of.
func isolates(k node.Knob) bool {
	return k == switchKnob || k.File == node.FileScheduler || k.File.OfThreads() || k.File.OrdersScheduler()
}

// show notes which of the ladder's knobs are wanted, and returns the other
// files, with the marks if this kernel has them.
func (i *isolation) show(files []node.File, can node.Capabilities) []node.File {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wanted = map[node.File]bool{}
	return slices.DeleteFunc(slices.Clone(files), func(f node.File) bool {
		switch f {
		case node.FileScheduler, node.FilePolicy, node.FileCookie, node.FileSlice, node.FileSchedulerGroup, node.FileSchedulerCap:
			i.wanted[f] = true
			return true
		case node.FileIdentity:
			i.wanted[f] = true
			return !can.CanMark()
		}
		return false
	})
}

// expire makes the next snapshot look at all threads whose turn it is not: new
// work may have come, with threads that are as no best-effort ones should be.
func (i *isolation) expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stale = true
}

// close unloads the scheduler. It does not wait for one that is being loaded,
// which may take a minute: that one is dropped when it is there, or goes with
// this process.
func (i *isolation) close() {
	i.mu.Lock()
	s, cookies := i.scheduler.loaded, i.cookies
	i.scheduler.loaded, i.cookies, i.scheduler.closed = nil, nil, true
	i.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
	if cookies != nil {
		cookies.Close()
	}
}

// now is the time as snapshots have it.
func (h *Host) now() time.Time { return h.opened.Add(time.Since(h.opened)).Round(0) }

// fall notes that a rung failed, and calls for the loop.
func (h *Host) fall(r node.Rung, refused bool, why error) {
	i := &h.isolation
	text := strings.Join(strings.Fields(why.Error()), " ")
	f := node.Fall{At: h.now(), Rung: r, Why: text, Refused: refused}
	i.mu.Lock()
	if n := len(i.falls); refused && n > 0 && i.falls[n-1].Rung == r && f.At.Sub(i.falls[n-1].At) < sameFall {
		i.mu.Unlock()
		return
	}
	i.falls = append(i.falls, f)
	i.falls = i.falls[max(len(i.falls)-fallsTold, 0):]
	i.mu.Unlock()
	h.wake(fmt.Sprintf("%s fell: %s", r, text))
}

func (h *Host) wake(text string) {
	select {
	case h.isolation.wakes <- RungEvent{At: time.Now(), Text: text}:
	default:
	}
}

// fillIsolation adds the ladder's knobs to a snapshot and what became of its
// rungs. It writes nothing.
func (h *Host) fillIsolation(s *node.Snapshot, touches map[node.Knob]journal.Touch) {
	i := &h.isolation
	i.mu.Lock()
	given := map[node.Knob]bool{}
	for k, t := range touches {
		if k.File.OfThreads() && mayHave(t) {
			given[k] = true
		}
	}
	i.given = given
	wanted := len(i.wanted) > 0
	idle := !wanted && len(given) == 0 && i.scheduler.loaded == nil && len(i.late) == 0
	if idle {
		i.mu.Unlock()
		return
	}
	i.own = make(map[node.CgroupPath]node.Class, len(s.Workloads))
	for _, w := range s.Workloads {
		i.own[w.Cgroup] = w.Class
	}
	if i.stale {
		maps.DeleteFunc(i.asked, func(p node.CgroupPath, a asked) bool {
			now, err := h.tree.Inode(string(p))
			return err != nil || now != a.inode
		})
	}
	i.falls = slices.DeleteFunc(i.falls, func(f node.Fall) bool { return s.At.Sub(f.At) > fallsKept })
	s.Isolation.Falls = slices.Clone(i.falls)
	showsScheduler := i.wanted[node.FileScheduler] && s.Can.Can(node.MechSchedExt)
	i.mu.Unlock()

	if _, touched := touches[schedulerKnob]; showsScheduler || touched {
		s.Knobs.Now[schedulerKnob], _ = h.readScheduler()
		h.fillOrders(s.At, s.Knobs.Now)
	}
	h.verifyThreads(s.At, s.Knobs.Now)
	if wanted {
		h.lookForOthers(s)
	}
}

// readIsolation reads one of the ladder's knobs.
func (h *Host) readIsolation(k node.Knob) (node.Value, error) {
	switch {
	case k.File == node.FileScheduler:
		return h.readScheduler()
	case k.File.OfThreads():
		return h.readThreads(k)
	case k.File.OrdersScheduler():
		return h.readOrder(k)
	}
	return h.readIdentity(k)
}

// writeIsolation writes one of the ladder's knobs. What the kernel refuses is a
// fall of the rung, if the knob is of one, unless the group is gone.
func (h *Host) writeIsolation(k node.Knob, v node.Value) error {
	var err error
	rung := node.RungVendor
	switch v := v.(type) {
	case node.Scheduler:
		rung, err = node.RungSchedExt, h.writeScheduler(v)
	case node.Threads:
		if rung = node.RungSchedExt; k.File == node.FileCookie {
			rung = node.RungCoreSched
		}
		err = h.writeThreads(k, v)
	case node.Identity:
		err = h.writeIdentity(k, v)
	default:
		return fmt.Errorf("write %v: a %T is no value of this file", k, v)
	}
	if k.File != node.FileSlice && h.falls(v, err) {
		h.fall(rung, true, err)
	}
	return err
}

// falls reports whether an error is the kernel's refusal to carry a rung, and
// not the trouble of one group or thread, which the next turn may find gone.
func (h *Host) falls(v node.Value, err error) bool {
	if err == nil || errors.Is(err, cgroup.ErrGone) {
		return false
	}
	switch v := v.(type) {
	case node.Scheduler:
		// Of the end of one that was loaded follow tells.
		now, _ := h.readScheduler()
		return v.Loaded && now == node.Value(node.Scheduler{}) && !errors.Is(err, scx.ErrClosed) && !errors.Is(err, ErrLoading)
	case node.Threads:
		return v == node.ThreadsBE && errors.Is(err, task.ErrUnsupported)
	case node.Identity:
		return v != node.IdentityNone && !errors.Is(err, cgroup.ErrUnsupported) // one group may have no file
	}
	return false
}
