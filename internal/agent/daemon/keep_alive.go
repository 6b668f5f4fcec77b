package daemon

import (
	"context"
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/machine/lease"
)

// A keptScheduler is the part of host.Host that keepAlive needs.
type keptScheduler interface {
	Tend() error
	Unload() (bool, error)
}

// keepAlive keeps the BE scheduler alive until ctx ends. The scheduler ends itself if
// it gets no heartbeat for some time, and the period of the loop may be longer than
// that time. Therefore keepAlive sends a heartbeat at each tick of the guard while the
// loop is alive.
//
// If the loop hangs, the watchdog limits best-effort work by quota, and keepAlive
// unloads the scheduler. Threads of the scheduler do not obey quotas, and the scheduler
// would take back the threads that the watchdog moved to the fair class.
func keepAlive(ctx context.Context, ticks <-chan time.Time, g *guard, s keptScheduler, log *slog.Logger) {
	said, last := "", time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		slept := time.Since(last) > 2*lease.Renewal // the process slept, so the tick starts only now
		last = time.Now()
		switch {
		case !g.hangs():
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
