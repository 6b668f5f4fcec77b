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
	// lookEvery is how often a watchdog reads the lease when all is well. It
	// reads it also at the deadline that it knows, so this only bounds how
	// late it learns of a new holder or of the end of the lease.
	lookEvery = time.Second
	// retry is how often it looks once the lease has expired, and how soon it
	// tries again what failed. What keeps failing it tries ever less often.
	retry = 200 * time.Millisecond
	// leaving bounds how long the last watchdog takes to end after it was asked
	// to.
	leaving = 5 * time.Second
	// recheck is the longest time between two readings of the knobs: another
	// process may have widened one.
	recheck = time.Second
)

// ErrGone means that the cgroup of a knob does not exist any more: it needs no
// bound.
var ErrGone = errors.New("no such cgroup")

// Options say what a watchdog guards and how it reads and writes.
type Options struct {
	Dir    string // of the lease
	Boot   string // the id of the running boot
	Kernel node.Kernel
	// Read returns the present value of a knob and the inode of its cgroup,
	// or ErrGone.
	Read func(node.Knob) (node.Value, uint64, error)
	// Apply performs a step on behalf of a holder that has fallen silent. It
	// journals as the holder would.
	Apply func(context.Context, Holder, plan.Step) error
	// Last means that no other watchdog guards after this one, for example
	// because it ends together with the holder. When ctx ends it waits, for as
	// long as the lease was renewed, to see whether the holder lives. If the
	// holder has announced its stop, or is silent, the watchdog applies the
	// bounds at once.
	Last bool
	// Log gets a line for each change of state. Nil: nothing is logged.
	Log *slog.Logger

	clock func() time.Duration // nil: monotonic
}

// Watch guards the lease in a directory until the lease is gone, or is found
// to be of another boot, or ctx ends; it returns ctx's error then. It guards
// for any holder, one after the other. Where another watchdog guards already
// it fails with ErrHeld.
//
// While the lease is expired, it narrows what exceeds its bound. It never
// widens: to step back is up to the holder that renews.
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
		if !stands(lock) {
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
		case <-time.After(wait):
		}
	}
}

// leave does the remaining work of a last watchdog.
func (w *watchdog) leave(ctx context.Context) {
	told, knew := w.last.head.deadline, w.known
	for end := w.clock() + leaving; w.clock() < end; {
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
			w.Log.Info("the watchdog ends, and the holder of the lease lives", "pid", h.holder.PID)
			return
		case alive:
			wait = min(wait, left)
		default:
			w.say(seen{stateLast, h.holder}, slog.LevelWarn, "nobody guards any more, best-effort work gets its safe bounds", "pid", h.holder.PID, "bounds", len(w.last.bounds))
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

// watchdog is what Watch remembers between two looks.
type watchdog struct {
	Options
	last  content // the last lease that could be read
	known bool    // there was one
	blind bool    // the latest could not be read
	seen  seen    // the last line that was logged

	awake   time.Duration // when this look was due; 0: the first
	excused time.Duration // the deadline that was let pass once
	due     time.Duration // when the knobs are looked at again
	pause   time.Duration // between the last two tries; 0: nothing failed
	failed  string        // the last failure that was logged
}

// seen is a state of which a change is worth a line.
type seen struct {
	state  string
	holder Holder
}

const (
	stateGuarding  = "guarding"
	stateAnnounced = "announced"
	stateExpired   = "expired"
	stateLast      = "last"
)

// look reads the lease once and acts on it. It returns when to look again, or
// that there is nothing left to guard.
func (w *watchdog) look(ctx context.Context) (wait time.Duration, goOn bool) {
	switch c, err := read(w.Dir, w.last); {
	case errors.Is(err, fs.ErrNotExist):
		w.Log.Info("the lease is gone, nothing is left to guard")
		return 0, false
	case err != nil:
		if !w.blind {
			w.Log.Error("the lease is unreadable, what was last read of it holds", "err", err, "known", w.known)
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
		w.Log.Info("the lease is of another boot, nothing is left to guard", "boot", h.boot)
		return 0, false
	}
	now := w.clock()
	left := h.deadline - now
	if left > 0 && left <= MaxAnnounce {
		w.well(h, left)
		return min(left, lookEvery), true
	}
	if w.overslept(now) && w.excused != h.deadline {
		w.excused = h.deadline
		return Renewal, true
	}
	w.say(seen{stateExpired, h.holder}, slog.LevelWarn, "the lease has expired, best-effort work gets its safe bounds",
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

// overslept reports that this process itself could not run when it should
// have: a virtual machine was paused, a container frozen. The holder has then
// been as unable to renew, and gets time for one renewal.
func (w *watchdog) overslept(now time.Duration) bool {
	return w.awake != 0 && now-w.awake > Renewal
}

// well notes that the lease holds.
func (w *watchdog) well(h head, left time.Duration) {
	w.due, w.pause, w.failed = 0, 0, ""
	if h.announced {
		w.say(seen{stateAnnounced, h.holder}, slog.LevelInfo, "the agent has announced that it stops", "pid", h.holder.PID, "left", left)
		return
	}
	text := "guarding"
	if w.seen.state == stateExpired {
		text = "the lease is renewed, best-effort work is the agent's again"
	}
	w.say(seen{stateGuarding, h.holder}, slog.LevelInfo, text, "pid", h.holder.PID)
}

// say logs a line if the state has changed.
func (w *watchdog) say(now seen, level slog.Level, text string, args ...any) {
	if w.seen != now {
		w.Log.Log(context.Background(), level, text, args...)
	}
	w.seen = now
}

// narrow reads the knobs and writes those that exceed their bound. It reports
// whether all knobs are within their bounds now, as far as the watchdog can
// bring them there.
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
		if i > 0 && !w.stillExpired() {
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

// stillExpired looks at the lease between two writes: a restore may have
// removed it, or its holder may have come back. A lease that cannot be read
// counts as unchanged.
func (w *watchdog) stillExpired() bool {
	c, err := read(w.Dir, w.last)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return c.head.deadline == w.last.head.deadline
}
