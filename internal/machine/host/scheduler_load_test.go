package host

import (
	"errors"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/model/node"
)

// loadSlowly begins to load a scheduler. The kernel verifies it until the
// channel gate is closed.
func (b *bench) loadSlowly(t *testing.T) (gate chan struct{}) {
	t.Helper()
	gate = make(chan struct{})
	b.ext.mu.Lock()
	b.ext.gate = gate
	b.ext.mu.Unlock()
	b.snapshot(t)
	b.ask(t, loaded)
	waitUntil(t, "a load has begun", func() bool { return b.begun() == 1 })
	return gate
}

// ask writes a value that cannot have an effect at once.
func (b *bench) ask(t *testing.T, v node.Scheduler) {
	t.Helper()
	if err := b.Apply(t.Context(), plan.Step{Knob: bescheduler.Knob, To: v}); !errors.Is(err, bescheduler.ErrLoading) {
		t.Fatalf("got %v, want that it is being loaded", err)
	}
}

func (b *bench) begun() int {
	b.ext.mu.Lock()
	defer b.ext.mu.Unlock()
	return b.ext.waits
}

// TestLoopTurnsOnWhileTheSchedulerIsLoaded checks that ticks continue while a
// scheduler is being loaded. The verification takes longer than best-effort
// work may run without limits.
func TestLoopTurnsOnWhileTheSchedulerIsLoaded(t *testing.T) {
	b := newBench(t, true)
	gate := b.loadSlowly(t)
	for range 3 {
		s := b.snapshot(t)
		if got := s.Knobs.Now[bescheduler.Knob]; got != node.Value(node.Scheduler{}) || s.Knobs.Before[bescheduler.Knob] == nil || len(s.Isolation.Failures) > 0 {
			t.Fatalf("shown as %v, before %v, falls %v", got, s.Knobs.Before[bescheduler.Knob], s.Isolation.Failures)
		}
		b.ask(t, loaded)
	}
	close(gate)
	waitUntil(t, "the loop is called", func() bool { return len(b.isolation.Events()) > 0 })
	if got := b.snapshot(t).Knobs.Now[bescheduler.Knob]; got != node.Value(loaded) || b.begun() != 1 {
		t.Errorf("shown as %v after %d loads", got, b.begun())
	}
	if do(t, b.release(t, bescheduler.Knob)); !b.ext.now.closed || !b.journaled(t).Empty() {
		t.Errorf("after the release: closed %v, journaled %v", b.ext.now.closed, b.journaled(t))
	}
}

// TestMindThatChangesWhileTheSchedulerIsLoaded changes during a load which
// scheduler is wanted. After the load, the newly wanted scheduler must be in
// effect.
func TestMindThatChangesWhileTheSchedulerIsLoaded(t *testing.T) {
	calmer := loaded
	calmer.Hold = time.Millisecond
	tests := map[string]struct {
		change func(t *testing.T, b *bench)
		want   node.Scheduler
	}{
		"it is given up": {func(t *testing.T, b *bench) { do(t, b.release(t, bescheduler.Knob)) }, node.Scheduler{}},
		"the loop hangs": {func(t *testing.T, b *bench) {
			if was, err := b.isolation.Unload(); !was || err != nil {
				t.Errorf("%v, %v", was, err)
			}
		}, node.Scheduler{}},
		"it is to work in another way": {func(t *testing.T, b *bench) { b.ask(t, calmer) }, calmer},
		"it is given up and wanted again": {func(t *testing.T, b *bench) {
			do(t, b.release(t, bescheduler.Knob))
			b.ask(t, calmer)
		}, calmer},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, true)
			gate := b.loadSlowly(t)
			tc.change(t, b)
			close(gate)
			waitUntil(t, "the load has ended", func() bool {
				return !b.isolation.Scheduler().Loading() && (!tc.want.Loaded || len(b.isolation.Events()) > 0)
			})
			s := b.snapshot(t)
			if got := s.Knobs.Now[bescheduler.Knob]; got != node.Value(tc.want) || len(s.Isolation.Failures) > 0 || b.begun() != 1 {
				t.Errorf("shown as %v, want %v; falls %v, %d loads", got, tc.want, s.Isolation.Failures, b.begun())
			}
			if tc.want.Loaded {
				if got := b.ext.now.params.Hold; got != tc.want.Hold {
					t.Errorf("it holds for %v, want %v", got, tc.want.Hold)
				}
				return
			}
			if st := b.isolation.Status(); !b.ext.now.closed || st.Exits[node.ExitUnload] != 1 || st.Scheduler == nil || st.Scheduler.Running {
				t.Errorf("closed %v, status %+v", b.ext.now.closed, st)
			}
		})
	}
}

func TestLoadThatFailsLate(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(t *testing.T, b *bench)
		failures int
	}{
		"is a fall":                        {func(*testing.T, *bench) {}, 1},
		"is none where it is not wanted":   {func(t *testing.T, b *bench) { do(t, b.release(t, bescheduler.Knob)) }, 0},
		"is none where the host is closed": {func(t *testing.T, b *bench) { b.isolation.Close() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, true)
			b.ext.refuses = errBoom
			gate := b.loadSlowly(t)
			tc.change(t, b)
			close(gate)
			waitUntil(t, "the load has ended", func() bool { return !b.isolation.Scheduler().Loading() })
			if tc.failures > 0 {
				waitUntil(t, "the loop is called", func() bool { return len(b.isolation.Events()) > 0 })
			}
			failures := b.snapshot(t).Isolation.Failures
			if len(failures) != tc.failures || tc.failures > 0 && (!failures[0].Refused || failures[0].Mechanism != node.MechanismSchedExt) {
				t.Errorf("falls %v, want %d, refused", failures, tc.failures)
			}
		})
	}
}

// TestClosingDoesNotWaitForALoad checks that Close returns during a load,
// because a service must stop soon after it was asked to stop.
func TestClosingDoesNotWaitForALoad(t *testing.T) {
	b := newBench(t, true)
	gate := b.loadSlowly(t)
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	select {
	case err := <-closed:
		do(t, err)
	case <-time.After(5 * time.Second):
		t.Fatal("it waits")
	}
	close(gate)
	waitUntil(t, "the load has ended", func() bool { return !b.isolation.Scheduler().Loading() })
	if !b.ext.now.closed {
		t.Error("it is loaded, and its host is closed")
	}
}

// TestShortLivedHostWaitsForALoad checks that a host that is not resident waits
// for the load. A lab uses such a host, and must not measure before its
// settings are in effect.
func TestShortLivedHostWaitsForALoad(t *testing.T) {
	b := newBench(t, false)
	do(t, b.Apply(t.Context(), plan.Step{Knob: bescheduler.Knob, To: loaded}))
	if got, _ := b.isolation.Scheduler().Read(); got != node.Value(loaded) {
		t.Errorf("shown as %v", got)
	}
}
