package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
)

const (
	// announced is how long best-effort work stays as it is after tenond was
	// asked to stop: time enough for an upgrade.
	announced = time.Minute
	// hung is how late a turn may be, or how long it may take, before the
	// loop counts as hung. With what a lease holds after its last renewal
	// (lease.TTL) it stays within the 2 s in which best-effort work must be
	// narrowed.
	hung = 400 * time.Millisecond
	// converting is how long it may take to make thousands of threads
	// best-effort ones, or normal ones, also by taking the scheduler down.
	converting = 5 * time.Second
)

// A guard tells the watchdog, by renewing the lease, that the loop turns.
type guard struct {
	dir   string
	host  *host.Host
	log   *slog.Logger
	lease *lease.Lease

	mu     sync.Mutex
	busy   bool      // a turn goes on
	by     time.Time // when it should be over, or the next have begun
	good   bool      // the last turn could read the node
	bounds []lease.Bound
	failed string // to renew, as it was logged last

	watchdog attempt // keep's own
	// ticks are those at which keep renews. Who else has to do something so often
	// needs no timer, and this process wakes up no more than it has to.
	ticks chan time.Time
}

// An attempt to start a watchdog, and when the next may be made.
type attempt struct {
	failed string        // as it was logged last
	waited time.Duration // after the attempt before; 0: there was a watchdog
	next   time.Time
}

// guardedFor is how long a watchdog that was there is believed to be.
const guardedFor = 2 * time.Second

// restartAtLatest bounds the wait before a watchdog that dies at once is
// started again.
const restartAtLatest = time.Minute

// openGuard takes the lease. It fails if another daemon has it.
func openGuard(dir string, fs proc.FS, h *host.Host, log *slog.Logger) (*guard, error) {
	boot, err := fs.BootID()
	if err != nil {
		return nil, err
	}
	self := h.Session()
	l, err := lease.Hold(dir, boot, lease.Holder{PID: self.PID, Start: self.Start})
	if errors.Is(err, lease.ErrHeld) {
		return nil, fmt.Errorf("another tenond keeps this node: %w", err)
	}
	if err != nil {
		return nil, err
	}
	return &guard{dir: dir, host: h, log: log, lease: l, ticks: make(chan time.Time, 1)}, nil
}

// begin notes that a turn begins. After the lease had run out, as when this
// process was stopped, the watchdog may have written: nothing that the host
// remembers of the knobs counts.
func (g *guard) begin() {
	if g.lease.Expired() {
		g.host.Reread()
		g.host.RereadThreads()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy, g.by = true, time.Now().Add(hung)
}

// allow gives what comes next of the turn so much time.
func (g *guard) allow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by = time.Now().Add(d)
}

// bind puts what must hold if the loop ends into the lease, before the turn
// writes anything. After lease.ErrLost nothing may be written: the lease was
// taken away to put everything back.
func (g *guard) bind(wants []plan.Want) error {
	bounds := make([]lease.Bound, 0, len(wants))
	for _, w := range wants {
		inode, err := g.host.Inode(w.Knob.Cgroup)
		if err != nil {
			continue // it is gone, and needs no bound
		}
		bounds = append(bounds, lease.Bound{Knob: w.Knob, Inode: inode, Value: w.Value, Reason: w.Reason})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bounds = bounds
	if err := g.renew(); errors.Is(err, lease.ErrLost) {
		return err
	}
	return nil // anything else has been logged
}

// end notes that a turn is over, and when the next one is due.
func (g *guard) end(good bool, period time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy, g.good, g.by = false, good, time.Now().Add(period+hung)
}

// keep renews the lease between the turns, as long as they come, and sees to
// it that there is a watchdog, until ctx ends. The error says that the lease
// was taken away.
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
			default: // the last is not done yet
			}
		}
		g.mu.Lock()
		var err error
		if g.turns() {
			err = g.renew()
		}
		g.mu.Unlock()
		if errors.Is(err, lease.ErrLost) {
			return err
		}
	}
}

// turns reports whether the loop turns as it should; g.mu is held.
func (g *guard) turns() bool { return time.Now().Before(g.by) && (g.good || g.busy) }

// hangs reports that the loop does not turn, and for so long that the lease has
// run out.
func (g *guard) hangs() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.turns() && g.lease.Expired()
}

// renew renews the lease; g.mu is held. A failure is logged once.
func (g *guard) renew() error {
	err := g.lease.Renew(g.bounds)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != g.failed {
		g.log.Error("the lease could not be renewed; best-effort work is narrowed when it runs out", "error", err)
	}
	g.failed = text
	return err
}

// start starts a watchdog if there is none: soon if there was one, ever later if those that were started are gone.
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

// announce leaves the lease to the next daemon.
func (g *guard) announce() error { return g.lease.Announce(announced) }

func (g *guard) close() error { return g.lease.Close() }
