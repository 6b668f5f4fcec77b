package loop

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// TestAServiceThatItsQuotaThrottlesIsNoReasonToHoldBE throttles a service between
// two ticks, and sends an event about it.
func TestAServiceThatItsQuotaThrottlesIsNoReasonToHoldBE(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		throttled time.Duration // since the tick before
		event     tick.Event
		violated  bool
	}{
		"not throttled":                   {0, tick.Event{Kind: tick.EventDelay, Workload: "web", Wait: 6 * ms}, true},
		"throttled for as long":           {50 * ms, tick.Event{Kind: tick.EventDelay, Workload: "web", Wait: 50 * ms}, false},
		"it waited for its own threads":   {50 * ms, tick.Event{Kind: tick.EventDelay, Workload: "web", Wait: 70 * ms}, false},
		"throttled for a part of it":      {ms, tick.Event{Kind: tick.EventDelay, Workload: "web", Wait: 6 * ms}, true},
		"another service waits":           {50 * ms, tick.Event{Kind: tick.EventDelay, Workload: "api", Wait: 6 * ms}, true},
		"BE ran on the sibling":           {50 * ms, tick.Event{Kind: tick.EventDelay, Workload: "web"}, true},
		"pressure of CPU":                 {50 * ms, tick.Event{Kind: tick.EventPressure, Workload: "web", Wait: 50 * ms}, false},
		"pressure of memory":              {50 * ms, tick.Event{Kind: tick.EventPressure, Workload: "web"}, true},
		"it is new, with an old counter":  {-1, tick.Event{Kind: tick.EventDelay, Workload: "web", Wait: 6 * ms}, true},
		"pressure of CPU, less throttled": {10 * ms, tick.Event{Kind: tick.EventPressure, Workload: "web", Wait: 50 * ms}, true},
	} {
		h := colocated()
		web := &h.snap.Workloads[0]
		a := &Agent{Host: h}
		if c.throttled >= 0 {
			web.Usage.Throttled = node.Some(time.Hour)
		}
		if _, err := a.tickOnce(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		web.Usage.Throttled = node.Some(time.Hour + max(c.throttled, 0))
		got, err := a.tickOnce(t.Context(), []tick.Event{c.event})
		if err != nil || got.Snapshot.SLOViolated != c.violated || len(got.Events) != 1 {
			t.Errorf("%s: violated %v, %v", name, got.Snapshot.SLOViolated, err)
		}
		if again := len(repeatEvents(got.Events, a.quotas)) > 0; again != c.violated {
			t.Errorf("%s: a second tick looks at it again: %v", name, again)
		}
	}
}
