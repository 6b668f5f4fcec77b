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
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// lookEvery is the longest time between two reads of a valid lease. The
	// watchdog also reads the lease at its deadline, and when a file is
	// removed. So within lookEvery it notices a new holder, and a removed lease
	// if the kernel does not report removals.
	lookEvery = time.Second
	// retry is the time between two reads of an expired lease. It is also the wait
	// after the first failed write, and doubles after each further failure.
	retry = 200 * time.Millisecond
	// leaveLimit is the time for which a watchdog with the option Last may
	// still run after its context has ended.
	leaveLimit = 5 * time.Second
	// recheck is the longest time between two reads of the knobs while the
	// lease is expired. Another process may widen a knob in between.
	recheck = time.Second
)

// ErrGone means that the cgroup of a knob does not exist any more. The knob
// then needs no bound.
var ErrGone = errors.New("no such cgroup")

// Options configure a watchdog.
type Options struct {
	Dir    string // directory of the lease
	Boot   string // id of the running boot
	Kernel node.Kernel
	// Read returns the present value of a knob and the inode of its cgroup, or
	// ErrGone if the cgroup does not exist.
	Read func(node.Knob) (node.Value, uint64, error)
	// Apply performs a step. In the journal, the author of the step is the
	// holder whose lease has expired.
	Apply func(context.Context, Holder, plan.Step) error
	// Last means that no other watchdog follows this one, for example because
	// it ends together with the holder. When ctx ends, such a watchdog waits
	// for one more renewal of the lease. If none comes, or if the holder has
	// announced its stop, it applies the bounds at once.
	Last bool
	// Removed gets a value when a file in Dir was removed, so that the watchdog
	// reads the lease at once: see WatchRemovals. If Removed is nil, the
	// watchdog notices the removal within lookEvery.
	Removed <-chan struct{}
	// Log gets a line for each change of state. Nil turns logging off.
	Log *slog.Logger

	clock func() time.Duration // nil: the function monotonic
}

// Watch guards the lease in o.Dir, whichever process holds it. It returns nil
// when the lease is removed or is from another boot. It returns the error of
// ctx when ctx ends, and ErrHeld if another watchdog guards the lease.
//
// While the lease is expired, Watch narrows each knob that exceeds its bound.
// Only the holder ever widens a knob.
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
		if !statedir.IsCurrent(lock) {
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

// leave does the last work of a watchdog with the option Last, after its context has ended.
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
	known bool        // last is set
	blind bool        // the last read failed
	seen  loggedState // the state of the last log line

	awake   time.Duration // planned time of the present look; 0: the first look
	excused time.Duration // the expired deadline for which the holder got extra time
	due     time.Duration // next time to read the knobs
	pause   time.Duration // the wait before the last retry; 0: no failure
	failed  string        // the last failure in the log
}

// A loggedState is the part of the watchdog's state whose changes are logged.
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

// look reads the lease once and acts on it. It returns how long to wait before
// the next look. If there is no lease to guard any more, goOn is false.
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

// hasOverslept reports whether this process did not run at the planned time,
// for example because a virtual machine was paused or a container was frozen.
// In that time the holder could not renew the lease either. So it then gets the
// time for one renewal.
func (w *watchdog) hasOverslept(now time.Duration) bool {
	return w.awake != 0 && now-w.awake > Renewal
}

// recordValid notes that the lease is valid, and logs it if that is new.
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

// consequence returns the log text about an expired lease. A lease has no
// bounds if CPU suppress is off, or if there is no best-effort work.
func (w *watchdog) consequence() string {
	if len(w.last.bounds) == 0 {
		return "there are no safe bounds: best-effort work stays as it is"
	}
	return "best-effort work gets its safe bounds"
}

// say logs a line if the state differs from the last one.
func (w *watchdog) say(now loggedState, level slog.Level, text string, args ...any) {
	if w.seen != now {
		w.Log.Log(context.Background(), level, text, args...)
	}
	w.seen = now
}

// narrow reads the knobs and writes those that exceed their bound. If a read or
// a write failed, it returns false, and the caller must try again.
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

// checkExpired reports whether the lease is still the same expired one. narrow calls it
// between two writes, because a restore may have removed the lease, or the holder may
// have renewed it. If the lease cannot be read, checkExpired returns true.
func (w *watchdog) checkExpired() bool {
	c, err := read(w.Dir, w.last)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return c.head.deadline == w.last.head.deadline
}
