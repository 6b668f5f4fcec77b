package slo

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// TestTheLargerCauseIsToBlame checks the cause, its culprit, and the shares of a
// window with a miss. BE loses CPU only if no other kind of work caused more.
func TestTheLargerCauseIsToBlame(t *testing.T) {
	type waits = map[node.WorkloadID]time.Duration
	for name, c := range map[string]struct {
		runners waits
		steal   time.Duration // in the window, beside a second of CPU time that the node used
		want    Cause
		culprit node.WorkloadID
		shares  []Share
	}{
		"BE":                        {waits{"batch/train": 600 * ms, "batch/spin": 100 * ms, "shop/db": 300 * ms}, 0, ForBE, "batch/train", []Share{{ForBE, 70}, {OtherService, 30}}},
		"a load that is too large":  {waits{"shop/web": 600 * ms, "batch/train": 400 * ms}, 0, OwnThreads, "", []Share{{OwnThreads, 60}, {ForBE, 40}}},
		"the burst of a service":    {waits{"shop/db": 500 * ms, "batch/train": 300 * ms, "shop/web": 200 * ms}, 0, OtherService, "shop/db", []Share{{OtherService, 50}, {ForBE, 30}, {OwnThreads, 20}}},
		"a daemon":                  {waits{"kube/dns": 550 * ms, "batch/train": 450 * ms}, 0, System, "kube/dns", []Share{{System, 55}, {ForBE, 45}}},
		"the hypervisor":            {waits{"batch/train": 450 * ms, "shop/web": 550 * ms}, 2 * time.Second, Host, "", []Share{{OwnThreads, 55}, {ForBE, 45}}},
		"the hypervisor a little":   {waits{"batch/train": time.Second}, 500 * ms, ForBE, "batch/train", []Share{{ForBE, 100}}},
		"BE, and much is not clear": {waits{"batch/train": 200 * ms, node.RunnerIdle: 800 * ms}, 0, ForBE, "batch/train", []Share{{Unclear, 80}, {ForBE, 20}}},
		"nothing that ran":          {waits{node.RunnerIdle: time.Second}, 0, Unclear, "", []Share{{Unclear, 100}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.snap.Usage.CPU, s.snap.Usage.Steal = node.Some(time.Duration(0)), node.Some(time.Duration(0))
			s.second(1000, 100*time.Microsecond, waits{"shop/web": ms})
			s.snap.Usage.CPU, s.snap.Usage.Steal = node.Some(time.Second), node.Some(c.steal)
			j := s.second(100, 9*ms, c.runners)
			culprit, _ := j.Culprit()
			if j.Cause != c.want || culprit != c.culprit || j.Verdict != Missed {
				t.Errorf("%s because of %s %s, want %s %s", j.Verdict, j.Cause, culprit, c.want, c.culprit)
			}
			if shares := j.Lately().Shares(); !reflect.DeepEqual(shares, c.shares) {
				t.Errorf("shares %v, want %v", shares, c.shares)
			}
			if m := s.tracker.Violations(); len(m) != 1 || m[0].Helpless != (c.want != ForBE) {
				t.Errorf("BE gives way or not: %+v", m)
			}
		})
	}
}

// TestOwnLimitStandsBeforeBE has a service that its own limit throttles in a tenth of
// the periods, and that waits for BE as long as it waits at all.
func TestOwnLimitStandsBeforeBE(t *testing.T) {
	f := live(30, second{waits: map[time.Duration]uint64{100 * time.Microsecond: 500, 9 * ms: 100}, byBE: time.Second, cpu: time.Second, throttled: time.Second, periods: 10, throttledPeriods: 1})
	if j := f.Judgement; j.Verdict != Missed || j.Cause != OwnLimit || !f.Miss.Helpless {
		t.Errorf("%+v %+v", j, f.Miss)
	}
}

// TestTheLastSecondIsNotDiluted lets a service work calmly for some time, with long
// and short ticks, beside batch work for which it waits a little. Then other batch
// work begins. The window has the waits for both, and the last second only those
// since the new work began.
func TestTheLastSecondIsNotDiluted(t *testing.T) {
	s := newScene()
	for range 7 {
		s.second(10, 100*time.Microsecond, map[node.WorkloadID]time.Duration{"batch/spin": 30 * ms})
	}
	j := s.second(100, 9*ms, map[node.WorkloadID]time.Duration{"batch/train": 100 * ms, "batch/spin": 10 * ms})
	if j.Verdict != Missed || j.Runners[0].ID != "batch/spin" || j.Window < 5*time.Second {
		t.Fatalf("the window has %+v", j.Waits)
	}
	last := j.Lately()
	if last.Window != time.Second || last.ByBE != 110*ms || !slices.Equal(last.Runners, []Runner{{"batch/train", ForBE, 100 * ms}, {"batch/spin", ForBE, 10 * ms}}) {
		t.Errorf("the last second has %+v", last)
	}
	// The next window began with the miss, and is not longer than a second.
	j = s.second(100, 9*ms, map[node.WorkloadID]time.Duration{"batch/train": 50 * ms})
	if last := j.Lately(); last.ByBE != 50*ms || last.Window != time.Second || j.Last.Window != 0 {
		t.Errorf("the second second has %+v, of %+v", last, j.Last)
	}
}
