package daemon

import (
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/model/node"
)

// A mechanismReport logs each change of the isolation mechanism, and each
// mechanism failure.
type mechanismReport struct {
	seen time.Time // time of the last failure that was logged
	last node.Mechanism
}

func (r *mechanismReport) report(log *slog.Logger, l node.Selection) {
	for _, f := range l.Failures {
		if f.At.After(r.seen) {
			r.seen = f.At
			log.Warn("isolation on the CPU failed; it is tried again later", "mechanism", f.Mechanism, "error", f.Why)
		}
	}
	if l.Mechanism != r.last {
		r.last = l.Mechanism
		log.Info(loop.LogMechanism, "mechanism", l.Mechanism, "reason", l.Why)
	}
}
