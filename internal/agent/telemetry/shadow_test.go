package telemetry

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
)

// TestAnObserverCountsWhatItWouldWrite checks the metrics of a tick that wrote nothing: the
// steps of the shadow, no write, and no limit of batch work, because none is in force.
func TestAnObserverCountsWhatItWouldWrite(t *testing.T) {
	m := New("v1")
	observed := tickAt(1)
	observed.Done = nil
	observed.Shadow = &tick.Shadow{Total: map[plan.Owner]int64{plan.OwnerSuppress: 12, plan.OwnerMemory: 3}}
	m.Observe(observed, nil, time.Second)
	got := map[string]float64{}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "tenon_shadow_steps_total":
			for _, s := range f.GetMetric() {
				got[s.GetLabel()[0].GetValue()] = s.GetCounter().GetValue()
			}
		case "tenon_be_cpu_limit_cores", "tenon_steps_total":
			t.Errorf("an observer has %s", f.GetName())
		}
	}
	if len(got) != 2 || got["suppress"] != 12 || got["memory"] != 3 {
		t.Errorf("the steps are %v", got)
	}
	m.Observe(tickAt(2), nil, time.Second)
	if families, err = m.registry.Gather(); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tenon_shadow_steps_total" {
			t.Error("an agent that acts has steps of a shadow")
		}
	}
}
