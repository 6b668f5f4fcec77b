package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/model/node"
)

// startOften calls start for the time long, at the same intervals as the method
// keep. It returns the log.
func startOften(t *testing.T, long time.Duration, watchdog string) string {
	t.Helper()
	var said bytes.Buffer
	g := &guard{dir: t.TempDir(), log: slog.New(slog.NewTextHandler(&said, nil))}
	for range long / lease.Renewal {
		g.start([]string{watchdog})
		time.Sleep(lease.Renewal)
	}
	return said.String()
}

func TestAWatchdogThatDiesAtOnceIsStartedEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The watchdog is started after 0, 1, 3, 7, 15, 31, 63 and 123 s.
		if said := startOften(t, 150*time.Second, "true"); strings.Count(said, "watchdog started") != 8 {
			t.Errorf("the log is\n%s", said)
		}
	})
}

func TestThatThereIsNoWatchdogIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if said := startOften(t, 30*time.Second, "/no/such/program"); strings.Count(said, "no watchdog") != 1 {
			t.Errorf("the log is\n%s", said)
		}
	})
}

func TestStepsThatTakeLongAreNoHang(t *testing.T) {
	loaded, other := node.Scheduler{Loaded: true}, node.Scheduler{Loaded: true, Siblings: true}
	for name, c := range map[string]struct {
		step plan.Step
		want time.Duration
	}{
		"load":        {plan.Step{From: node.Scheduler{}, To: loaded}, hungAfter}, // loads in the background
		"unknown now": {plan.Step{To: loaded}, hungAfter},
		"change":      {plan.Step{From: loaded, To: other}, hungAfter},
		"unload":      {plan.Step{From: loaded, To: node.Scheduler{}}, convertTime},
		"convert":     {plan.Step{From: node.ThreadsNormal, To: node.ThreadsBE}, convertTime},
		"give back":   {plan.Step{From: node.ThreadsBE, To: node.ThreadsNormal, Release: true}, convertTime},
		"a quota":     {plan.Step{From: node.Limit(1), To: node.Limit(2)}, hungAfter},
	} {
		if got := host.MayTakeLong(c.step); got != (c.want == convertTime) {
			t.Errorf("%s: it takes long: %v, want at most %v", name, got, c.want)
		}
	}
}

// TestTheGuardTicksForOthers checks that the channel ticks gets a value at each
// renewal, even if its receiver was busy for a while.
func TestTheGuardTicksForOthers(t *testing.T) {
	dir := t.TempDir()
	h, err := host.Open(host.Options{JournalDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	g, err := openGuard(dir, proc.Default(), h, new(lease.Machine), new(health.Health), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.close() }()
	ctx, stop := context.WithTimeout(t.Context(), 5*lease.Renewal+lease.Renewal/2)
	defer stop()
	kept := make(chan error, 1)
	go func() { kept <- g.keep(ctx, nil) }()
	time.Sleep(3*lease.Renewal + lease.Renewal/2)
	n := 0
	for waiting := true; waiting; {
		select {
		case <-g.ticks:
			n++
		case err := <-kept:
			waiting = false
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("keep: %v", err)
			}
		}
	}
	if n == 0 {
		t.Error("no tick")
	}
}
