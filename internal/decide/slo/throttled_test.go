package slo

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const ms = time.Millisecond

// A second holds what a service does in each second of a test.
type second struct {
	waits            map[time.Duration]uint64
	byBE, bySelf     time.Duration
	byOthers         time.Duration // waits for a third kind of work
	cpu, throttled   time.Duration
	periods          int64
	throttledPeriods int64
}

// live returns the state of the objective of 2 ms after so many of these
// seconds. The counters are read every 100 ms, as in ticks that alarms start.
func live(seconds int, c second) State {
	w := node.Workload{ID: "web"}
	w.Usage.Delay = node.RunQueueDelay{Sum: node.Some(time.Duration(0)), Counts: make([]uint64, kernelBuckets)}
	var f State
	var r Reading
	at := time.Unix(1000, 0)
	f = f.observe(at, &w, 2*ms, r, nil)
	for i := 1; i <= 10*seconds; i++ {
		part := func(d time.Duration) time.Duration { return d * time.Duration(i) / 10 }
		counts := make([]uint64, kernelBuckets)
		for length, n := range c.waits {
			b := 0
			for b < kernelBuckets-1 && length >= node.DelayBound(b) {
				b++
			}
			counts[b] += n * uint64(i) / 10
		}
		w.Usage.Delay.Counts = counts
		r = Reading{
			Waited: part(c.byBE + c.bySelf + c.byOthers), ByBE: part(c.byBE), BySelf: part(c.bySelf),
			CPU: node.Some(part(c.cpu)), Throttled: node.Some(part(c.throttled)),
			Periods: node.Some(c.periods * int64(i) / 10), ThrottledPeriods: node.Some(c.throttledPeriods * int64(i) / 10),
		}
		f = f.observe(at.Add(time.Duration(i)*100*ms), &w, 2*ms, r, nil)
	}
	return f
}

// TestOnlyWaitsThatTheQuotaDoesNotExplainCostBE throttles a service by its own
// quota. The kernel counts this as waiting for BE.
func TestOnlyWaitsThatTheQuotaDoesNotExplainCostBE(t *testing.T) {
	for name, c := range map[string]struct {
		second
		missed, throttled, helpless bool
	}{
		"throttled in each period, on 8 CPUs": {
			second{waits: map[time.Duration]uint64{100 * time.Microsecond: 500, 87 * ms: 80}, byBE: 7 * time.Second, cpu: time.Second, throttled: 7 * time.Second, periods: 10, throttledPeriods: 10},
			true, true, true,
		},
		"8 threads on 2 CPUs": {
			second{waits: map[time.Duration]uint64{100 * time.Microsecond: 500, 50 * ms: 80}, byBE: 4 * time.Second, bySelf: 3 * time.Second, cpu: time.Second, throttled: time.Second, periods: 10, throttledPeriods: 10},
			true, true, true,
		},
		"throttled a little": {
			second{waits: map[time.Duration]uint64{100 * time.Microsecond: 500, 50 * ms: 20}, byBE: time.Second, cpu: time.Second, throttled: time.Second, periods: 100, throttledPeriods: 2},
			true, true, true,
		},
		"throttled a little, and it waits for BE": {
			second{waits: map[time.Duration]uint64{100 * time.Microsecond: 500, 50 * ms: 10, 6 * ms: 100}, byBE: 1100 * ms, cpu: time.Second, throttled: 500 * ms, periods: 100, throttledPeriods: 2},
			true, false, false,
		},
		"throttled in each period for a short time, and it waits for BE for longer": {
			second{waits: map[time.Duration]uint64{100 * time.Microsecond: 500, 5 * ms: 40, 12 * ms: 200}, byBE: 2600 * ms, cpu: time.Second, throttled: 200 * ms, periods: 10, throttledPeriods: 10},
			true, true, true,
		},
		"throttled, and otherwise it waits for itself": {
			second{waits: map[time.Duration]uint64{5 * ms: 400, 20 * ms: 20}, byBE: 400 * ms, bySelf: 2 * time.Second, cpu: 4 * time.Second, throttled: 400 * ms, periods: 100, throttledPeriods: 3},
			true, false, true,
		},
		"other work runs during the throttling, and it waits for BE": {
			second{waits: map[time.Duration]uint64{100 * time.Microsecond: 500, 50 * ms: 10, 6 * ms: 100}, byBE: 600 * ms, byOthers: 500 * ms, cpu: time.Second, throttled: 500 * ms, periods: 100, throttledPeriods: 2},
			true, false, false,
		},
		"throttled, and it meets its objective": {
			second{waits: map[time.Duration]uint64{100 * time.Microsecond: 5000}, byBE: 500 * ms, cpu: time.Second, throttled: 10 * ms, periods: 10, throttledPeriods: 1},
			false, false, false,
		},
	} {
		f := live(30, c.second)
		m := f.Miss
		if m.Happened() != c.missed || m.Quota == Explains != c.throttled || m.Helpless != c.helpless {
			t.Errorf("%s: %+v", name, m)
		}
		if m.Happened() && m.Quota == "" {
			t.Errorf("%s: it does not say that the quota throttled it: %s", name, m.Text())
		}
		if left := (Tracker{Work: map[node.WorkloadID]State{"web": f}}).Unexplained(); len(left) == 1 == (c.throttled || !c.missed) {
			t.Errorf("%s: unexplained misses: %v", name, left)
		}
	}
}

// TestAMissForAnotherReasonOutlastsThrottling lets a service wait for BE. After
// that, only its quota throttles it. The miss must count as before: for
// calmBefore, and no longer.
func TestAMissForAnotherReasonOutlastsThrottling(t *testing.T) {
	w := node.Workload{ID: "web"}
	w.Usage.Delay = node.RunQueueDelay{Sum: node.Some(time.Duration(0)), Counts: make([]uint64, kernelBuckets)}
	at := time.Unix(1000, 0)
	r := Reading{Throttled: node.Some(time.Duration(0))}
	f := State{Miss: Miss{At: at}, Since: at, Delay: w.Usage.Delay, Counters: r}
	for i := 1; i <= 8; i++ {
		counts := make([]uint64, kernelBuckets)
		counts[9], counts[18] = uint64(500*i), uint64(20*i) // 20 waits of 34 to 67 ms
		w.Usage.Delay.Counts = counts
		r.Waited, r.ByBE, r.Throttled = r.Waited+time.Second, r.ByBE+time.Second, node.Some(time.Duration(i)*time.Second)
		f = f.observe(at.Add(time.Duration(i)*time.Second), &w, 2*ms, r, nil)
		if throttled := i >= int(calmBefore/time.Second); f.Miss.Quota == Explains != throttled || !f.Miss.Happened() {
			t.Errorf("after %d s: %+v", i, f.Miss)
		}
	}
}

// TestAQuotaThatOftenThrottlesIsToBlame counts the periods in a window. Nothing
// is held by a quota that it does not have, or that never throttles it.
func TestAQuotaThatOftenThrottlesIsToBlame(t *testing.T) {
	for held, want := range map[int64]bool{0: false, 1: false, 4: false, 5: true, 100: true} {
		r := Reading{Periods: node.Some[int64](100), ThrottledPeriods: node.Some(held)}
		if got := r.isHeldByQuota(); got != want {
			t.Errorf("throttled in %d of 100 periods: held %v", held, got)
		}
	}
	if (Reading{Throttled: node.Some(time.Second)}).isHeldByQuota() {
		t.Error("held without a period")
	}
}

// TestACounterThatIsMissingExplainsNothing checks that a counter explains
// nothing if it was missing in one of the readings, or was reset.
func TestACounterThatIsMissingExplainsNothing(t *testing.T) {
	known := Reading{Throttled: node.Some(time.Hour), Periods: node.Some[int64](9), ThrottledPeriods: node.Some[int64](9)}
	for _, c := range [][2]Reading{{{}, known}, {known, {}}, {known, {Throttled: node.Some(time.Second)}}} {
		if grown, ok := c[1].since(c[0]); !ok || grown.throttledWaits() != 0 {
			t.Errorf("%+v: throttling explains %v", c, grown.throttledWaits())
		}
	}
}

// TestTheBeginOfABurstDoesNotBlameBE lets a service with a CPU limit begin to work
// several times. The first window of a burst has waits for BE, and no throttled
// time yet. In the next one, the limit throttles it. Neither may blame BE, and
// only a second window without throttling does.
func TestTheBeginOfABurstDoesNotBlameBE(t *testing.T) {
	s := newScene()
	usage := func() *node.Usage { return &s.snap.Workloads[0].Usage }
	pass := func(cpu, throttled time.Duration, held int64) {
		u := usage()
		u.CPU = node.Some(u.CPU.Or(0) + cpu)
		u.Throttled, u.ThrottledPeriods = node.Some(u.Throttled.Or(0)+throttled), node.Some(u.ThrottledPeriods.Or(0)+held)
		u.Periods = node.Some(u.Periods.Or(0) + 10)
	}
	rest := func(seconds int) {
		for range seconds {
			pass(10*ms, 0, 0)
			s.second(10, time.Microsecond, nil)
		}
	}
	waits := map[node.WorkloadID]time.Duration{"batch/train": 900 * time.Millisecond}
	rest(12) // the first window ends, and the next one begins with all counters
	for burst := range 3 {
		pass(10*ms, 0, 0)
		if s.second(100, 9*time.Millisecond, waits); len(s.tracker.Unexplained()) > 0 {
			t.Errorf("burst %d: the first window blames BE: %+v", burst, s.judgement())
		}
		for range 3 {
			pass(20*ms, 20*ms, 9)
			if s.second(100, 9*time.Millisecond, waits); len(s.tracker.Unexplained()) > 0 {
				t.Errorf("burst %d: BE is blamed while the limit throttles the service: %+v", burst, s.judgement())
			}
		}
		if j := s.judgement(); j.Cause != OwnLimit {
			t.Errorf("burst %d: %+v", burst, j)
		}
		rest(1)
	}
	rest(12)
	for window, want := range []int{0, 1} {
		pass(20*ms, 0, 0)
		if s.second(100, 9*time.Millisecond, waits); len(s.tracker.Unexplained()) != want {
			t.Errorf("window %d without throttling: %+v", window, s.judgement())
		}
	}
}
