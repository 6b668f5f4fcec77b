package daemon

import (
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A rungReport logs each change of the isolation mechanism, and each mechanism
// failure.
type rungReport struct {
	seen time.Time // the time of the last failure that was logged
	last node.Rung
}

func (r *rungReport) report(log *slog.Logger, l node.LadderStatus) {
	for _, f := range l.Falls {
		if f.At.After(r.seen) {
			r.seen = f.At
			log.Warn("isolation on the CPU failed; it is tried again later", "rung", f.Rung, "error", f.Why)
		}
	}
	if l.Rung != r.last {
		r.last = l.Rung
		log.Info("isolation on the CPU", "rung", l.Rung, "reason", l.Why)
	}
}
