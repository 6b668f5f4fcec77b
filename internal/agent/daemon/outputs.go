package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/agent/telemetry"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
)

// A publisher publishes the ticks of the daemon through the recorder, the audit
// log, the metrics and the socket. If one of them fails, the publisher logs
// this once, and the loop goes on.
type publisher struct {
	ledger   *control.Ledger
	metrics  *telemetry.Metrics
	recorder *record.Recorder // nil: the recorder could not be opened
	audit    *record.Audit
	log      *slog.Logger
	failed   string // the last error of the recorder that was logged
}

// openShow opens the outputs of a daemon. The caller must hold the lease.
func openShow(o Options, h *health.Health) *publisher {
	s := &publisher{ledger: control.NewLedger(o.Version), metrics: telemetry.New(o.Version), log: o.Log}
	s.ledger.Show(h)
	s.metrics.Show(h)
	s.audit = record.OpenAudit(o.StateDir, 0, func(err error) { o.Log.Error("a log of writes is missing", "error", err) })
	var err error
	if s.recorder, err = record.Open(o.StateDir, 0); err != nil {
		o.Log.Error("the flight recorder does not work, so tenon capture has nothing to save", "error", err)
	}
	return s
}

// tick publishes a tick. config and st are the configuration and the state of
// the policies in this tick.
func (s *publisher) tick(t tick.Tick, err error, config policy.Config, st policy.State, period time.Duration) {
	s.ledger.Observe(t, err)
	s.metrics.Observe(t, err, period)
	s.audit.Record(t)
	if s.recorder == nil {
		return
	}
	text := ""
	if err := s.recorder.Record(record.Tick{Tick: t.Performed(), Config: config, Before: st, MaxSteps: maxSteps, Observed: t.Shadow != nil}); err != nil {
		if text = err.Error(); text != s.failed {
			s.log.Error("ticks are missing from the flight recorder", "error", err)
		}
	}
	s.failed = text
}

// serve serves the metrics, and the socket for the command tenon, until ctx
// ends. operator carries out the requests that come through the socket.
func (s *publisher) serve(ctx context.Context, o Options, operator control.Operator, background *sync.WaitGroup) {
	background.Go(func() {
		if err := control.Serve(ctx, o.StateDir, s.ledger, operator, o.Log); err != nil {
			o.Log.Error("tenon status, explain, top and qos are not served", "error", err)
		}
	})
	if o.Metrics != "" {
		background.Go(func() { telemetry.Serve(ctx, o.Metrics, s.metrics.Handler(), o.Log) })
	}
}

func (s *publisher) close() error {
	s.audit.Close()
	if s.recorder == nil {
		return nil
	}
	return s.recorder.Close()
}
