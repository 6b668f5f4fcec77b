package daemon

import (
	"context"
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/machine/lease"
)

// A tended scheduler is that of package host.
type tended interface {
	Tend() error
	Unload() (bool, error)
}

// tend looks after the scheduler of best-effort threads beside the loop, at each
// tick, until ctx ends. While the loop turns it is told so, however long the period is: the
// time of silence after which it ends itself may be shorter.
//
// When the loop hangs, and the watchdog holds best-effort work to its bound, the
// scheduler goes: its threads are not held to it, and those that the watchdog
// takes from it would be brought back.
func tend(ctx context.Context, ticks <-chan time.Time, g *guard, s tended, log *slog.Logger) {
	said, last := "", time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		slept := time.Since(last) > 2*lease.Renewal // as the loop has, which begins its turn only now
		last = time.Now()
		switch {
		case !g.hangs():
			text := ""
			if err := s.Tend(); err != nil {
				text = err.Error()
			}
			if text != "" && text != said {
				log.Warn("the scheduler of best-effort threads was not told that tenond lives", "error", text)
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
