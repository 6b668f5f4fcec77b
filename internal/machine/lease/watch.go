package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// lookEvery is the longest time between two reads of a valid lease. The
	// watchdog also reads the lease at its deadline, and when a file is removed.
	// So lookEvery only limits how long it takes until the watchdog notices a new
	// holder, or a removed lease where the kernel does not report removals.
	lookEvery = time.Second
	// retry is the time between two reads of an expired lease. It is also the
	// first wait after a failed write. While writes fail, the waits grow.
	retry = 200 * time.Millisecond
	// leaveLimit is the time that a watchdog for which Last is set may take to end
	// after its context has ended.
	leaveLimit = 5 * time.Second
	// recheck is the longest time between two reads of the knobs while the
	// lease is expired. The watchdog reads them again because another process
	// may have widened one.
	recheck = time.Second
)

// ErrGone means that the cgroup of a knob does not exist any more. Then the
// bound of the knob has no meaning.
var ErrGone = errors.New("no such cgroup")

// Options configure a watchdog.
type Options struct {
	Dir    string // directory of the lease
	Boot   string // id of the running boot
	Kernel node.Kernel
	// Read returns the present value of a knob and the inode of its cgroup. If
	// the cgroup does not exist, it returns ErrGone.
	Read func(node.Knob) (node.Value, uint64, error)
	// Apply performs a step in the name of the holder whose lease has expired. It
	// writes the same lines to the journal as the holder.
	Apply func(context.Context, Holder, plan.Step) error
	// Last says that no other watchdog follows this one, for example because
	// this one ends together with the holder. When ctx ends, such a watchdog
	// waits for one more renewal of the lease. If there is none, or if the
	// holder has announced its stop, it applies the bounds at once.
	Last bool
	// Removed says that the watchdog should read the lease now, because a file
	// in Dir was removed: see WatchRemovals. If it is nil, the watchdog notices
	// within lookEvery that the lease was removed.
	Removed <-chan struct{}
	// Log gets a line for each change of state. If it is nil, nothing is
	// logged.
	Log *slog.Logger

	clock func() time.Duration // nil: the function monotonic
}

// Watch guards the lease in a directory, whichever process holds it. It returns
// when the lease is removed or is from another boot. If ctx ends, it returns
// the error of ctx. If another watchdog guards the lease, it returns ErrHeld.
//
// While the lease is expired, Watch narrows each knob that exceeds its bound.
// It never widens a knob. Only the holder does that.
func Watch(ctx context.Context, o Options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.clock == nil {
		o.clock = monotonic
	}
	lock, err := acquire(filepath.Join(o.Dir, watchdogLock))
	if err != nil {
		return fmt.Errorf("guard the lease in %s: %w", o.Dir, err)
	}
	defer lock.Close()
	w := watchdog{Options: o}
	for {
		wait, goOn := w.look(ctx)
		if !goOn {
			return nil
		}
		if !isCurrent(lock) {
			o.Log.Warn("the watchdog ends, because its lock was removed: the holder of the lease starts another", "directory", o.Dir)
			return nil
		}
		w.awake = w.clock() + wait
		select {
		case <-ctx.Done():
			if w.Last {
				w.leave(context.WithoutCancel(ctx))
			}
			return ctx.Err()
		case <-w.Removed:
		case <-time.After(wait):
		}
	}
}

// leave is called when the context of a watchdog that has Last set ends.
func (w *watchdog) leave(ctx context.Context) {
	told, knew := w.last.head.deadline, w.known
	for end := w.clock() + leaveLimit; w.clock() < end; {
		c, err := read(w.Dir, w.last)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return
		case err == nil:
			w.last, w.known = c, true
		}
		h := w.last.head
		if !w.known || h.boot != w.Boot {
			return
		}
		left := h.deadline - w.clock()
		wait := retry
		switch alive := left > 0 && left <= MaxAnnounce && !h.announced; {
		case alive && knew && h.deadline != told:
			w.Log.Info("the watchdog ends; the holder of the lease is alive", "pid", h.holder.PID)
			return
		case alive:
			wait = min(wait, left)
		default:
			w.say(loggedState{stateLast, h.holder}, slog.LevelWarn, "no watchdog remains, "+w.consequence(), "pid", h.holder.PID, "bounds", len(w.last.bounds))
			if w.narrow(ctx) {
				return
			}
		}
		if !knew {
			told, knew = h.deadline, true
		}
		time.Sleep(wait)
	}
}

// watchdog is the state of Watch between two reads of the lease.
type watchdog struct {
	Options
	last  content     // the last valid lease
	known bool        // there was a valid lease
	blind bool        // the last read failed
	seen  loggedState // the state of the last log line

	awake   time.Duration // planned time of this look; 0: the first look
	excused time.Duration // the deadline that was ignored once
	due     time.Duration // next time to read the knobs
	pause   time.Duration // the wait before the last retry; 0: no failure
	failed  string        // the last failure in the log
}

// A loggedState is the part of the state whose changes are logged.
type loggedState struct {
	state  string
	holder Holder
}

const (
	stateGuarding  = "guarding"
	stateAnnounced = "announced"
	stateExpired   = "expired"
	stateLast      = "last"
)

// look reads the lease once and acts on what it reads. It returns how long to
// wait before the next look. goOn is false if there is no lease to guard any
// more.
func (w *watchdog) look(ctx context.Context) (wait time.Duration, goOn bool) {
	switch c, err := read(w.Dir, w.last); {
	case errors.Is(err, fs.ErrNotExist):
		w.Log.Info("the lease is gone, the watchdog ends")
		return 0, false
	case err != nil:
		if !w.blind {
			w.Log.Error("the lease is unreadable, using the last one that was read", "err", err, "known", w.known)
		}
		w.blind = true
		if !w.known {
			return lookEvery, true
		}
	default:
		w.last, w.known, w.blind = c, true, false
	}
	h := w.last.head
	if h.boot != w.Boot {
		w.Log.Info("the lease is from another boot, the watchdog ends", "boot", h.boot)
		return 0, false
	}
	now := w.clock()
	left := h.deadline - now
	if left > 0 && left <= MaxAnnounce {
		w.recordValid(h, left)
		return min(left, lookEvery), true
	}
	if w.hasOverslept(now) && w.excused != h.deadline {
		w.excused = h.deadline
		return Renewal, true
	}
	w.say(loggedState{stateExpired, h.holder}, slog.LevelWarn, "the lease has expired, "+w.consequence(),
		"pid", h.holder.PID, "late", -left, "bounds", len(w.last.bounds))
	if now >= w.due {
		w.due = now + recheck
		if w.narrow(ctx) {
			w.pause = 0
		} else {
			w.pause = min(max(2*w.pause, retry), recheck)
			w.due = now + w.pause
		}
	}
	return retry, true
}

// hasOverslept reports whether this process did not run when it planned to run.
// This happens if a virtual machine was paused or a container was frozen. The
// holder could not renew the lease during that time either, so it gets the time
// for one renewal.
func (w *watchdog) hasOverslept(now time.Duration) bool {
	return w.awake != 0 && now-w.awake > Renewal
}

// recordValid records that the lease is valid.
func (w *watchdog) recordValid(h head, left time.Duration) {
	w.due, w.pause, w.failed = 0, 0, ""
	if h.announced {
		w.say(loggedState{stateAnnounced, h.holder}, slog.LevelInfo, "the agent has announced that it stops", "pid", h.holder.PID, "left", left)
		return
	}
	text := "guarding"
	if w.seen.state == stateExpired {
		text = "the lease is renewed, the agent manages best-effort work again"
	}
	w.say(loggedState{stateGuarding, h.holder}, slog.LevelInfo, text, "pid", h.holder.PID)
}

// consequence says what an expired lease means for best-effort work. A lease has
// no bounds if CPU suppress is off, or if there is no best-effort work.
func (w *watchdog) consequence() string {
	if len(w.last.bounds) == 0 {
		return "there are no safe bounds: best-effort work stays as it is"
	}
	return "best-effort work gets its safe bounds"
}

// say logs a line if the state has changed.
func (w *watchdog) say(now loggedState, level slog.Level, text string, args ...any) {
	if w.seen != now {
		w.Log.Log(context.Background(), level, text, args...)
	}
	w.seen = now
}

// narrow reads the knobs, and writes those that exceed their bound. It reports
// whether the watchdog has done all that it can: each knob is within its bound,
// or cannot be narrowed further.
func (w *watchdog) narrow(ctx context.Context) bool {
	now := node.Knobs{Kernel: w.Kernel, Now: map[node.Knob]node.Value{}}
	var errs []error
	for _, b := range w.last.bounds {
		v, inode, err := w.Read(b.Knob)
		switch {
		case errors.Is(err, ErrGone) || err == nil && inode != b.Inode:
		case err != nil:
			errs = append(errs, fmt.Errorf("read %v: %w", b.Knob, err))
		default:
			now.Now[b.Knob] = v
		}
	}
	var done []plan.Step
	for i, s := range Narrow(now, w.last.bounds) {
		if i > 0 && !w.checkExpired() {
			break
		}
		switch err := w.Apply(ctx, w.last.head.holder, s); {
		case err == nil:
			done = append(done, s)
		case !errors.Is(err, ErrGone):
			errs = append(errs, err)
		}
	}
	if len(done) > 0 {
		w.Log.Warn("best-effort work is narrowed", "writes", len(done), "first", done[0].String())
	}
	failed := ""
	if len(errs) > 0 {
		failed = errs[0].Error()
		if failed != w.failed {
			w.Log.Error("best-effort work could not be narrowed", "failed", len(errs), "first", failed)
		}
	}
	w.failed = failed
	return failed == ""
}

// checkExpired reads the lease again between two writes, because a restore may
// have removed it, or its holder may have renewed it. If the lease cannot be
// read, it counts as unchanged.
func (w *watchdog) checkExpired() bool {
	c, err := read(w.Dir, w.last)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return c.head.deadline == w.last.head.deadline
}
