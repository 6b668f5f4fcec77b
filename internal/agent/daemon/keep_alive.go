package daemon

import (
	"context"
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/machine/lease"
)

// A keptScheduler is the BE scheduler of a host.Host, with the methods that keepAlive calls.
type keptScheduler interface {
	Tend() error
	Unload() (bool, error)
}

// keepAlive keeps the BE scheduler alive until ctx ends. The scheduler ends
// itself if it gets no heartbeat for some time, and two ticks of the loop may be
// further apart. So keepAlive sends a heartbeat after each renewal of the lease
// (guard.ticks), while the loop is alive.
//
// If the loop hangs, keepAlive unloads the scheduler. The watchdog then limits
// best-effort work by quota, and the scheduler's threads obey no quota. (The
// scheduler would also take back threads that are moved to the fair class.)
func keepAlive(ctx context.Context, ticks <-chan time.Time, g *guard, s keptScheduler, log *slog.Logger) {
	said, last := "", time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		slept := time.Since(last) > 2*lease.Renewal // the process itself slept, so the loop may continue now
		last = time.Now()
		switch {
		case !g.isHung():
			text := ""
			if err := s.Tend(); err != nil {
				text = err.Error()
			}
			if text != "" && text != said {
				log.Warn("the heartbeat of the scheduler of best-effort threads failed", "error", text)
			}
			said = text
		case !slept:
			switch was, err := s.Unload(); {
			case err != nil:
				log.Error("the loop hangs, and the scheduler of best-effort threads was not taken down", "error", err)
			case was:
				log.Error("the loop hangs: the scheduler of best-effort threads was taken down")
			}
		}
	}
}
