package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/lease"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/plan"
)

// starting calls start as often as keep does for some time, and returns the
// log.
func starting(t *testing.T, long time.Duration, watchdog string) string {
	t.Helper()
	var said bytes.Buffer
	g := &guard{dir: t.TempDir(), log: slog.New(slog.NewTextHandler(&said, nil))}
	for range long / lease.Renewal {
		g.start([]string{watchdog})
		g.failed = "" // as renew leaves it
		time.Sleep(lease.Renewal)
	}
	return said.String()
}

func TestAWatchdogThatDiesAtOnceIsStartedEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// After 0, 1, 3, 7, 15, 31, 63 and 123 s.
		if said := starting(t, 150*time.Second, "true"); strings.Count(said, "watchdog started") != 8 {
			t.Errorf("it said\n%s", said)
		}
	})
}

func TestThatThereIsNoWatchdogIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if said := starting(t, 30*time.Second, "/no/such/program"); strings.Count(said, "no watchdog") != 1 {
			t.Errorf("it said\n%s", said)
		}
	})
}

func TestStepsThatTakeLongAreNoHang(t *testing.T) {
	loaded, other := node.Scheduler{Loaded: true}, node.Scheduler{Loaded: true, Siblings: true}
	for name, c := range map[string]struct {
		step plan.Step
		want time.Duration
	}{
		"load":        {plan.Step{From: node.Scheduler{}, To: loaded}, loading},
		"unknown now": {plan.Step{To: loaded}, loading},
		"change":      {plan.Step{From: loaded, To: other}, hung},
		"unload":      {plan.Step{From: loaded, To: node.Scheduler{}}, converting},
		"convert":     {plan.Step{From: node.ThreadsNormal, To: node.ThreadsBE}, converting},
		"give back":   {plan.Step{From: node.ThreadsBE, To: node.ThreadsNormal, Release: true}, converting},
		"a quota":     {plan.Step{From: node.Limit(1), To: node.Limit(2)}, hung},
	} {
		if got := takes(c.step); got != c.want {
			t.Errorf("%s: it may take %v, want %v", name, got, c.want)
		}
	}
}
