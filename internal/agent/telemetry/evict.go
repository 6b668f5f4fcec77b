package telemetry

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// evictionReasons lists the resources whose shortage causes evictions. The
// reason of an eviction step begins with one of these words.
var evictionReasons = []string{"memory", "cpu"}

var descFrozen = desc("tenon_workloads_frozen", "Best-effort workloads that Tenon has frozen because memory is short.")

func newEvictions() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tenon_evictions_total", Help: "Best-effort workloads that Tenon has evicted, by the resource that was short: memory or cpu.",
	}, []string{"reason"})
	for _, r := range evictionReasons {
		c.WithLabelValues(r)
	}
	return c
}

// countEvictions adds the evictions of a tick to the counter.
func countEvictions(c *prometheus.CounterVec, t tick.Tick) {
	for _, o := range t.Done {
		reason, _, _ := strings.Cut(o.Step.Reason, ":")
		if o.Step.To == node.AskedToEnd && o.Err == nil && slices.Contains(evictionReasons, reason) {
			c.WithLabelValues(reason).Inc()
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
