package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
)

const (
	// announced is the time for which best-effort work keeps its values after
	// tenond was asked to stop. It is long enough for an upgrade.
	announced = time.Minute
	// hungAfter is the maximum delay of a tick, and also its maximum duration. If
	// a tick is later or takes longer, the loop counts as hung. Best-effort work
	// must be narrowed within 2 s. lease.TTL is the time from the last renewal to
	// the end of the lease, so hungAfter + lease.TTL must be less than 2 s.
	hungAfter = 400 * time.Millisecond
	// convertTime is the maximum time that a tick may take to move thousands of
	// threads to the best-effort scheduler or away from it. It includes the
	// time to unload that scheduler.
	convertTime = 5 * time.Second
)

// A guard renews the lease while the loop is alive. The watchdog reads this lease.
type guard struct {
	dir   string
	host  *host.Host
	log   *slog.Logger
	lease *lease.Lease
	// machine is the lock of the machine. If another program removed its file,
	// keep makes it again.
	machine *lease.Machine
	health  *health.Health

	mu     sync.Mutex
	busy   bool      // a tick is running
	by     time.Time // deadline for the end of this tick, or for the start of the next
	good   bool      // the last tick could read the node
	bounds []lease.Bound

	watchdog attempt // used only by keep
	// ticks delivers the times at which keep renews the lease. Other periodic
	// work receives from ticks and has no timer of its own, so that the process
	// wakes up less often.
	ticks chan time.Time
}

// An attempt says when a watchdog was last started, and when the next start is due.
type attempt struct {
	failed string        // the last logged error
	waited time.Duration // the wait before this attempt; 0: a watchdog was running
	next   time.Time
}

// guardedFor is the time until the next check, after a check that found a
// running watchdog.
const guardedFor = 2 * time.Second

// restartAtLatest is the longest wait before a watchdog is started again. It is
// reached if the watchdog always exits at once.
const restartAtLatest = time.Minute

// openGuard acquires the lease. It fails if another daemon holds it.
func openGuard(dir string, fs proc.FS, h *host.Host, machine *lease.Machine, trouble *health.Health, log *slog.Logger) (*guard, error) {
	boot, err := fs.BootID()
	if err != nil {
		return nil, err
	}
	self := h.Session()
	l, err := lease.Hold(dir, boot, lease.Holder{PID: self.PID, Start: self.Start})
	if errors.Is(err, lease.ErrHeld) {
		return nil, fmt.Errorf("another tenond manages this node: %w", err)
	}
	if err != nil {
		return nil, err
	}
	return &guard{dir: dir, host: h, log: log, lease: l, machine: machine, health: trouble, ticks: make(chan time.Time, 1)}, nil
}

// begin records the start of a tick. If the lease had expired, for example
// because this process was stopped, the watchdog may have written knobs. Then
// begin drops the knob cache of the host.
func (g *guard) begin() {
	if g.lease.HasExpired() {
		g.host.Reread()
		g.host.Isolation().Expire()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy, g.by = true, time.Now().Add(hungAfter)
}

// allow sets the time within which the next part of the tick must end.
func (g *guard) allow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by = time.Now().Add(d)
}

// bind puts the safe bounds into the lease before the tick writes anything. If
// it returns lease.ErrLost, the tick must not write: another process took the
// lease in order to restore all knobs.
func (g *guard) bind(wants []plan.Want) error {
	bounds := make([]lease.Bound, 0, len(wants))
	for _, w := range wants {
		inode, err := g.host.Inode(w.Knob.Cgroup)
		if err != nil {
			continue // the cgroup is gone and needs no bound
		}
		bounds = append(bounds, lease.Bound{Knob: w.Knob, Inode: inode, Value: w.Value, Reason: w.Reason})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bounds = bounds
	if err := g.renew(); errors.Is(err, lease.ErrLost) {
		return err
	}
	return nil // renew has reported any other error
}

// end records that a tick has ended, and when the next one is due.
func (g *guard) end(good bool, period time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy, g.good, g.by = false, good, time.Now().Add(period+hungAfter)
}

// keep renews the lease while ticks are on time, and makes sure that a watchdog runs.
// It returns when ctx ends, or with an error if another process took the lease.
func (g *guard) keep(ctx context.Context, watchdog []string) error {
	ticker := time.NewTicker(lease.Renewal)
	defer ticker.Stop()
	for {
		g.start(watchdog)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case at := <-ticker.C:
			select {
			case g.ticks <- at:
			default: // the receiver is still busy
			}
		}
		err := g.machine.Keep()
		if errors.Is(err, lease.ErrHeld) {
			return err
		}
		g.report("machine lock", "the lock of the machine could not be made again", err)
		g.mu.Lock()
		if g.isOnTime() {
			err = g.renew()
		}
		g.mu.Unlock()
		if errors.Is(err, lease.ErrLost) {
			return err
		}
	}
}

// isOnTime reports whether ticks are on time. The caller holds g.mu.
func (g *guard) isOnTime() bool { return time.Now().Before(g.by) && (g.good || g.busy) }

// hangs reports whether the loop has been late for so long that the lease has expired.
func (g *guard) hangs() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.isOnTime() && g.lease.HasExpired()
}

// renew renews the lease and reports a failure. The caller holds g.mu.
func (g *guard) renew() error {
	err := g.lease.Renew(g.bounds)
	g.report("lease", "the lease could not be renewed, and best-effort work is narrowed when it runs out", err)
	return err
}

// report reports that a part of the state has a fault, or that the fault has ended.
func (g *guard) report(part, what string, err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("%s: %v", what, err)
	}
	g.health.Set(health.State, part, text)
}

// start starts a watchdog if none runs. If watchdogs exit at once, the wait
// grows with each attempt.
func (g *guard) start(watchdog []string) {
	if len(watchdog) == 0 || time.Now().Before(g.watchdog.next) {
		return
	}
	started, err := lease.Guard(g.dir, exec.Command(watchdog[0], watchdog[1:]...))
	if err == nil && !started {
		g.watchdog = attempt{next: time.Now().Add(guardedFor)}
		return
	}
	w := &g.watchdog
	w.waited = min(max(2*w.waited, time.Second), restartAtLatest)
	w.next = time.Now().Add(w.waited)
	if err == nil {
		w.failed = ""
		g.log.Info("watchdog started")
		return
	}
	if text := err.Error(); text != w.failed {
		g.log.Error("no watchdog: best-effort work is not narrowed if tenond dies", "error", err)
		w.failed = text
	}
}

// announce records in the lease that another daemon will take over.
func (g *guard) announce() error { return g.lease.Announce(announced) }

func (g *guard) close() error { return g.lease.Close() }
