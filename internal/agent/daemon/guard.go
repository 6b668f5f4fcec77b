package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// announcedFor is the time for which best-effort work keeps its values after a
	// request to stop tenond. It is long enough for an upgrade.
	announcedFor = time.Minute
	// hungAfter is the maximum delay of a tick, and the maximum duration of a
	// tick. After this time, the loop counts as hung. Then the lease expires
	// lease.TTL after its last renewal. The sum of hungAfter and lease.TTL must be
	// less than 2 s, because best-effort work must be narrowed within that time.
	hungAfter = 400 * time.Millisecond
	// stepTime is the maximum duration of a step that may take long: one that moves
	// thousands of threads to the BE scheduler or away from it, unloads that
	// scheduler, or lets the kernel reclaim memory.
	stepTime = 5 * time.Second
	// reclaimTime is the time after which a tick begins no more steps for which
	// the kernel may reclaim memory. While the kernel reclaims, the loop cannot
	// narrow best-effort work for a service that needs more CPU.
	reclaimTime = time.Second
)

// errReclaimed means that a step is left for the next tick.
var errReclaimed = fmt.Errorf("left for the next tick: the memory limits that this tick has narrowed took more than %v, because the kernel reclaims memory", reclaimTime)

// A guard renews the lease while the loop is alive. The watchdog reads the lease. A nil
// guard, that of a daemon that observes, has nothing to guard.
type guard struct {
	dir   string
	host  *host.Host
	log   *slog.Logger
	lease *lease.Lease
	// machine is the lock of the machine. If another program has removed its file,
	// the method keep takes the lock again.
	machine *lease.Machine
	health  *health.Health

	mu     sync.Mutex
	busy   bool      // a tick is running
	by     time.Time // deadline for the end of the present tick, or for the start of the next
	good   bool      // the last tick could read the node
	bounds []lease.Bound

	reclaimed time.Duration // duration of the steps of this tick that may reclaim memory; only the loop uses it
	// refused holds the knobs whose last step that may reclaim memory failed, the
	// latest failure last. Only the loop uses it.
	refused  []node.Knob
	watchdog attempt // only keep uses it
	// ticks gets the time of each renewal in the method keep. Other periodic work
	// also waits for this channel. Without timers of its own, the process wakes up
	// less often.
	ticks chan time.Time
}

// An attempt records the attempts to start a watchdog.
type attempt struct {
	failed string        // the last error that was logged
	waited time.Duration // the wait before this attempt; 0: a watchdog was running
	next   time.Time
}

// guardedFor is the time until the next check while a watchdog runs.
const guardedFor = 2 * time.Second

// restartAtLatest is the longest wait before a new start of a watchdog that
// always exits at once.
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

// begin records the start of a tick. If the lease has expired, for example
// because this process was stopped, the watchdog may have written knobs. In
// that case, begin clears the knob cache of the host.
func (g *guard) begin() {
	if g == nil {
		return
	}
	if g.lease.HasExpired() {
		g.host.Reread()
		g.host.Isolation().Expire()
	}
	g.reclaimed = 0
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy, g.by = true, time.Now().Add(hungAfter)
}

// allow sets how long the next part of the present tick may take.
func (g *guard) allow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.by = time.Now().Add(d)
}

// during calls the function do, which performs a step. A step that may take long
// gets more time. If the steps of this tick for which the kernel reclaims memory
// have taken too long, during does not perform another one, and returns an error:
// the next tick tries it again.
func (g *guard) during(s plan.Step, do func() error) (err error) {
	if !host.MayTakeLong(s) {
		return do()
	}
	if host.MayReclaim(s) {
		if g.reclaimed >= reclaimTime {
			return fmt.Errorf("apply %v: %w", s, errReclaimed)
		}
		begun := time.Now()
		defer func() {
			g.reclaimed += time.Since(begun)
			g.noteReclaim(s.Knob, err)
		}()
	}
	g.allow(stepTime)
	defer g.allow(hungAfter)
	return do()
}

// noteReclaim records whether a step that may reclaim memory failed.
func (g *guard) noteReclaim(k node.Knob, err error) {
	g.refused = slices.DeleteFunc(g.refused, func(r node.Knob) bool { return r == k })
	if err != nil {
		g.refused = append(g.refused, k)
	}
}

// order returns the indexes of the steps of a tick in the order in which to
// perform them. Steps for which the kernel may reclaim memory come last, because
// the others may be what a service needs at once, such as a quota of best-effort
// work. The limits of memory need no order among other knobs. Among these steps,
// those that failed before come last, the latest failure at the end: on cgroup v1
// the kernel refuses a limit below what it cannot reclaim, after it has tried for
// the whole time that a tick has for such steps.
func (g *guard) order(steps []plan.Step) []int {
	ranks, order := make([]int, 0, len(steps)), make([]int, 0, len(steps))
	wanted := map[node.Knob]bool{}
	for i, s := range steps {
		rank := 0
		if host.MayReclaim(s) {
			wanted[s.Knob] = true
			rank = 2 + slices.Index(g.refused, s.Knob) // 1: it has not failed
		}
		ranks, order = append(ranks, rank), append(order, i)
	}
	g.refused = slices.DeleteFunc(g.refused, func(k node.Knob) bool { return !wanted[k] })
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ranks[a], ranks[b]) })
	return order
}

// writeBounds writes the safe bounds into the lease before the tick writes any knob.
// After lease.ErrLost, the tick must not write, because another process has
// taken the lease in order to restore all knobs.
func (g *guard) writeBounds(wants []plan.Want) error {
	if g == nil {
		return nil
	}
	bounds := g.boundsOf(wants)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bounds = bounds
	if err := g.renew(); errors.Is(err, lease.ErrLost) {
		return err
	}
	return nil // renew has reported any other error
}

// boundsOf returns the bounds for these wants. A cgroup that is gone needs none. If a
// cgroup cannot be looked up for another reason, it may exist: its bound keeps the
// inode number that the last one had. Without a last one there is no bound, because
// the watchdog could take a later cgroup of that name for this one.
func (g *guard) boundsOf(wants []plan.Want) []lease.Bound {
	bounds := make([]lease.Bound, 0, len(wants))
	var missing []error
	for _, w := range wants {
		inode, err := g.host.Inode(w.Knob.Cgroup)
		if errors.Is(err, cgroup.ErrGone) {
			continue
		}
		if err != nil {
			last := slices.IndexFunc(g.bounds, func(b lease.Bound) bool { return b.Knob == w.Knob })
			if last < 0 {
				missing = append(missing, err)
				continue
			}
			inode = g.bounds[last].Inode
		}
		bounds = append(bounds, lease.Bound{Knob: w.Knob, Inode: inode, Value: w.Value, Reason: w.Reason})
	}
	text := ""
	if len(missing) > 0 {
		text = fmt.Sprintf("%d safe bounds of best-effort work are not in the lease: %v", len(missing), missing[0])
	}
	g.health.Set(health.Bounds, "cgroups", text)
	return bounds
}

// end records the end of a tick. The next tick is due after period.
func (g *guard) end(good bool, period time.Duration) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy, g.good, g.by = false, good, time.Now().Add(period+hungAfter)
}

// keep renews the lease while ticks are on time, and keeps a watchdog running. It
// returns when ctx ends, or with an error if another process has taken the lease.
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

// isOnTime reports whether the tick ends or starts in time. The caller holds g.mu.
func (g *guard) isOnTime() bool { return time.Now().Before(g.by) && (g.good || g.busy) }

// isHung reports whether the loop has hung so long that the lease has expired.
func (g *guard) isHung() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.isOnTime() && g.lease.HasExpired()
}

// renew renews the lease and reports a failure. The caller holds g.mu.
func (g *guard) renew() error {
	err := g.lease.Renew(g.bounds)
	old := ""
	if errors.Is(err, lease.ErrOldBounds) {
		// This is no damage of the state: the lease holds, and a restart, which a
		// failing probe causes, would make no room on the file system.
		old, err = fmt.Sprintf("new safe bounds of best-effort work are not in the lease: %v", err), nil
	}
	g.health.Set(health.Bounds, "lease", old)
	g.report("lease", "the lease could not be renewed, and best-effort work is narrowed when it runs out", err)
	return err
}

// report shows a fault of a part of the agent, or the end of the fault if err is nil.
func (g *guard) report(part, what string, err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("%s: %v", what, err)
	}
	g.health.Set(health.State, part, text)
}

// start starts a watchdog if none runs. If watchdogs exit at once, the waits
// between its attempts become longer.
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

// announce writes into the lease that another daemon will take over.
func (g *guard) announce() error { return g.lease.Announce(announcedFor) }

func (g *guard) close() error { return g.lease.Close() }

// watchdogOf returns the process that guards the lease in stateDir, or an empty
// list. Tenon must not end or freeze this process.
func watchdogOf(stateDir string) []int {
	if pid, guarded := lease.IsGuarded(stateDir); guarded {
		return []int{pid}
	}
	return nil
}
