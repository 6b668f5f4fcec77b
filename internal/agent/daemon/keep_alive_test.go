package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
)

// A fakeScheduler counts heartbeats.
type fakeScheduler struct {
	mu             sync.Mutex
	beats, unloads int
}

func (f *fakeScheduler) Tend() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats++
	return errors.New("the map is gone")
}

func (f *fakeScheduler) Unload() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unloads++
	return true, nil
}

func (f *fakeScheduler) counts() (beats, unloads int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.beats, f.unloads
}

// TestASchedulerLivesByTheLoop checks that the scheduler gets heartbeats
// between two ticks of a long period. If the loop hangs for longer than the
// lease lasts, the scheduler must be unloaded.
func TestASchedulerLivesByTheLoop(t *testing.T) {
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
	var s fakeScheduler
	watch := func(long time.Duration) (beats, unloads int) {
		ctx, stop := context.WithTimeout(t.Context(), long)
		defer stop()
		s = fakeScheduler{}
		ticker := time.NewTicker(lease.Renewal)
		defer ticker.Stop()
		keepAlive(ctx, ticker.C, g, &s, slog.New(slog.DiscardHandler))
		return s.counts()
	}
	g.end(true, time.Minute) // the next tick is due in a minute
	if beats, unloads := watch(3 * lease.Renewal); beats < 1 || unloads != 0 {
		t.Errorf("between two ticks: %d heartbeats, taken down %d times", beats, unloads)
	}
	g.begin()
	if err := g.writeBounds(nil); err != nil {
		t.Fatal(err)
	}
	g.allow(-time.Second) // the loop hangs
	if _, unloads := watch(lease.TTL / 2); unloads != 0 {
		t.Errorf("taken down %d times while the lease holds", unloads)
	}
	time.Sleep(lease.TTL / 2)
	if beats, unloads := watch(3 * lease.Renewal); beats != 0 || unloads < 1 {
		t.Errorf("the loop hangs: %d heartbeats, taken down %d times", beats, unloads)
	}
}
