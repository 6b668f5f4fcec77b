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
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// fallsKept is how long a mechanism failure is reported, and fallsTold how
	// many are.
	fallsKept = time.Hour
	fallsTold = 32
	// rungEventsKept bounds the queue of events; further ones add nothing.
	rungEventsKept = 16
	// sameFall is how long after a refusal further ones count as the same
	// failure: one tick writes many knobs.
	sameFall = 5 * time.Second
)

// isolation is the state of the isolation knobs. The host does not read thread
// knobs that Tenon has not set: reading all threads is the main cost of these
// mechanisms.
type isolation struct {
	ext   extMeans
	core  coreMeans
	wakes chan RungEvent

	mu     sync.Mutex
	wanted map[node.File]bool // knobs that snapshots show; before the first Show all
	own    map[node.CgroupPath]node.Class
	given  map[node.Knob]bool             // thread knobs that Tenon has set
	seen   map[node.Knob]node.Value       // values of given, as last read
	apart  map[node.Knob]int              // threads left as they are: real-time, or with a slice of their own
	spared map[node.CgroupPath]sparing    // cgroups exempt from isolation: frozen, or ending
	safe   map[node.CgroupPath]node.Class // cgroups of other classes whose threads were checked
	rounds reread.Cycle                   // of the checks of safe
	spills map[int]time.Time              // demoted threads, and until when
	turn   reread.Cycle                   // of the reads of seen
	stale  bool                           // read all of seen again
	asked  map[node.CgroupPath]asked      // marks that the kernel rounds

	scheduler scheduler
	cookies   coreCookie              // nil: no thread has our cookie
	bore      map[uint64]bool         // our cookies, since the first was set
	late      map[node.File]time.Time // when to check all threads once more after the last release
	foreign   foreign
	falls     []node.Fall
	status    node.IsolationStatus
}

// A RungEvent wakes the loop for a mechanism failure or stray threads.
type RungEvent struct {
	At   time.Time
	Text string
}

// RungEvents returns the channel of these events while the host is open. Events
// that are not received are dropped.
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

// switchKnob is the global switch of the marks. No snapshot shows it: it
// follows from the marks.
var switchKnob = node.Knob{File: node.FileIdentity}

// schedulerKnob is the knob of the BPF scheduler.
var schedulerKnob = node.Knob{File: node.FileScheduler}

// isolates reports whether a knob is outside the knob cache.
func isolates(k node.Knob) bool {
	return k == switchKnob || k.File == node.FileScheduler || k.File.OfThreads() || k.File.OrdersScheduler()
}

// show stores which isolation knobs are wanted, and returns the other files,
// plus the marks if this kernel has them.
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

// expire makes the next snapshot check all threads at once: new threads may
// lack the best-effort attributes.
func (i *isolation) expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stale = true
}

// close unloads the scheduler. It does not wait for a load in progress, which
// may take a minute: that scheduler is dropped after its load, or ends with
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

// now returns the time on the clock of the snapshots.
func (h *Host) now() time.Time { return h.opened.Add(time.Since(h.opened)).Round(0) }

// fall records a mechanism failure, and wakes the loop.
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

// fillIsolation adds the isolation knobs and the mechanism failures to a
// snapshot. It writes nothing.
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

// readIsolation reads an isolation knob.
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

// writeIsolation writes an isolation knob. If the kernel refuses the write and
// the cgroup still exists, that is a mechanism failure.
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

// falls reports whether an error is the kernel's refusal of a mechanism, and
// not a problem of one cgroup or thread that the next tick may find gone.
func (h *Host) falls(v node.Value, err error) bool {
	if err == nil || errors.Is(err, cgroup.ErrGone) {
		return false
	}
	switch v := v.(type) {
	case node.Scheduler:
		// follow reports the end of a loaded scheduler.
		now, _ := h.readScheduler()
		return v.Loaded && now == node.Value(node.Scheduler{}) && !errors.Is(err, scx.ErrClosed) && !errors.Is(err, ErrLoading)
	case node.Threads:
		return v == node.ThreadsBE && errors.Is(err, task.ErrUnsupported)
	case node.Identity:
		return v != node.IdentityNone && !errors.Is(err, cgroup.ErrUnsupported) // one cgroup may lack the file
	}
	return false
}
