package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

var descFrozen = desc("tenon_workloads_frozen", "Best-effort workloads that Tenon has frozen because memory is short.")

func newEvictions() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tenon_evictions_total", Help: "Best-effort workloads that Tenon has evicted, by the resource that was short: memory or cpu.",
	}, []string{"reason"})
	for _, cause := range evict.Causes {
		c.WithLabelValues(string(cause))
	}
	return c
}

// countEvictions adds the evictions of a tick to the counter.
func countEvictions(c *prometheus.CounterVec, t tick.Tick) {
	if len(t.Victims) == 0 {
		return
	}
	asked := map[node.CgroupPath]bool{}
	for _, o := range t.Done {
		asked[o.Step.Knob.Cgroup] = asked[o.Step.Knob.Cgroup] || o.Step.To == node.AskedToEnd && o.Err == nil
	}
	for _, w := range t.Snapshot.Workloads {
		if v, chosen := t.Victims[w.ID]; chosen && asked[w.Cgroup] {
			c.WithLabelValues(string(v.Cause)).Inc()
		}
	}
}

// countFrozen returns the number of workloads that Tenon has frozen.
func countFrozen(s node.Snapshot) float64 {
	n := 0.0
	for k, v := range s.Knobs.Now {
		if _, ours := s.Knobs.Before[k]; v == node.Frozen && ours {
			n++
		}
	}
	return n
}
