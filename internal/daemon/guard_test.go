package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/lease"
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
