package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/agent/telemetry"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/tick"
)

// A show lets others see what the daemon does. None of it may stop the loop:
// what fails is logged once, and the rest goes on.
type show struct {
	ledger   *control.Ledger
	metrics  *telemetry.Metrics
	recorder *record.Recorder // nil: it could not be opened
	audit    *record.Audit
	log      *slog.Logger
	failed   string // the recorder's error that was logged last
}

// openShow opens the files. Only the holder of the lease may.
func openShow(o Options) *show {
	s := &show{ledger: control.NewLedger(o.Version), metrics: telemetry.New(o.Version), log: o.Log}
	s.audit = record.OpenAudit(o.StateDir, 0, func(err error) { o.Log.Error("a log of writes is missing", "error", err) })
	var err error
	if s.recorder, err = record.Open(o.StateDir, 0); err != nil {
		o.Log.Error("nothing is recorded for tenon capture", "error", err)
	}
	return s
}

// turn takes a turn that was decided by config from what st remembered.
func (s *show) turn(t tick.Tick, err error, config policy.Config, st policy.State, period time.Duration) {
	s.ledger.Observe(t, err)
	s.metrics.Observe(t, err, period)
	s.audit.Record(t)
	if s.recorder == nil {
		return
	}
	text := ""
	if err := s.recorder.Record(record.Turn{Tick: t, Config: config, Before: st, MaxSteps: maxSteps}); err != nil {
		if text = err.Error(); text != s.failed {
			s.log.Error("turns are missing from what tenon capture saves", "error", err)
		}
	}
	s.failed = text
}

// serve answers tenon and Prometheus until ctx ends. What tenon asks for is done
// by operator.
func (s *show) serve(ctx context.Context, o Options, operator control.Operator, background *sync.WaitGroup) {
	background.Go(func() {
		if err := control.Serve(ctx, o.StateDir, s.ledger, operator, o.Log); err != nil {
			o.Log.Error("tenon status, explain, top and qos are not served", "error", err)
		}
	})
	if o.Metrics != "" {
		background.Go(func() { telemetry.Serve(ctx, o.Metrics, s.metrics.Handler(), o.Log) })
	}
}

func (s *show) close() error {
	s.audit.Close()
	if s.recorder == nil {
		return nil
	}
	return s.recorder.Close()
}
