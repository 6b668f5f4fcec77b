package containerstart

import (
	"context"
	"errors"
	"sync"
	"time"
)

// The container runtime asks its NRI plugins under one lock for the whole node.
// While a container waits for a tick or for the kubelet, the runtime creates,
// starts and stops nothing else, so the waits of many containers add up. The
// allowance bounds their sum: waits that follow each other end after
// bestEffortAllowance or demandAllowance and one more wait. After that, waits
// take at most a share of 1/returnShare of the time. A container that does not
// wait has its values after the next tick, as without NRI.
const (
	// bestEffortAllowance is for containers of best-effort work. It is enough for a
	// dozen containers that start together on a node of a usual size.
	bestEffortAllowance = time.Second
	// demandAllowance is for containers of pods that demand CPUs. It is larger, so
	// that starts of best-effort work do not use it up.
	demandAllowance = 2 * time.Second
	// returnShare is the ratio of any time to the part of the allowance that
	// returns in this time.
	returnShare = 4
)

// errSpent ends a wait before it begins.
var errSpent = errors.New("containers have waited too long already, and the runtime starts and stops no other container meanwhile")

// An allowance is the time for which containers may still wait. Several
// goroutines may call the methods. The zero allowance is not spent.
type allowance struct {
	mu    sync.Mutex
	spent time.Duration // by waits; less the part that has returned until at
	at    time.Time
	until time.Time // the end of the last wait
}

// has reports whether waits have spent less than limit.
func (a *allowance) has(limit time.Duration, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.giveBack(now)
	return a.spent < limit
}

// spend records a wait that began at begun and ends now. The time in which two
// waits overlap counts once, because only one of them holds the runtime's lock.
func (a *allowance) spend(begun, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.giveBack(now)
	if a.until.After(begun) {
		begun = a.until
	}
	a.spent, a.until = a.spent+now.Sub(begun), now
}

func (a *allowance) giveBack(now time.Time) {
	a.spent, a.at = max(0, a.spent-now.Sub(a.at)/returnShare), now
}

// within returns the context of a wait. If waits have spent limit, this context
// has ended. The caller must call the returned function at the end of the wait.
func (s *Containers) within(ctx context.Context, limit time.Duration) (context.Context, func()) {
	if s == nil {
		return ctx, func() {}
	}
	begun := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	if !s.waits.has(limit, begun) {
		cancel(errSpent)
	}
	return ctx, func() {
		cancel(nil)
		s.waits.spend(begun, time.Now())
	}
}
