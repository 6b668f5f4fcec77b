package manager

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the metrics of the manager. controller-runtime adds its own.
type metrics struct {
	delay  prometheus.Histogram
	writes *prometheus.CounterVec
}

// writesFailed is the value of the metric label change for failed writes.
const writesFailed = "failed"

func newMetrics() *metrics {
	m := &metrics{
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tenon_manager_report_delay_seconds", Help: "Time from reading a report to the end of the write to its node, for writes without and with a delay.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 5, 10, 30, 300},
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_manager_node_writes_total", Help: "Writes of batch resources to the status of nodes, by what they changed.",
		}, []string{"change"}),
	}
	for _, change := range []string{"more", "less", "removed", writesFailed} {
		m.writes.WithLabelValues(change)
	}
	return m
}

func (m *metrics) wrote(change string) { m.writes.WithLabelValues(change).Inc() }
func (m *metrics) failed()             { m.writes.WithLabelValues(writesFailed).Inc() }

// expectedScheduler returns a metric that is 1 if pods are given to a scheduler
// that chooses CPUs. An alert can then find out that this scheduler is missing.
func expectedScheduler(name string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tenon_manager_scheduler_expected", Help: "1 if the webhooks give pods that ask for CPUs to a scheduler that chooses CPUs (--scheduler-name); otherwise 0.",
	})
	if name != "" {
		g.Set(1)
	}
	return g
}

var descNodes = prometheus.NewDesc("tenon_manager_nodes", "Nodes by what became of the report of their agent; known to the replica that leads.", []string{"state"}, nil)

// A collector counts the nodes in each state when the metrics are read.
type collector struct {
	*metrics
	nodes *nodes
}

// Describe sends the descriptions of all metrics.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	c.delay.Describe(to)
	c.writes.Describe(to)
	to <- descNodes
}

// Collect sends the metrics.
func (c collector) Collect(to chan<- prometheus.Metric) {
	c.delay.Collect(to)
	c.writes.Collect(to)
	count := c.nodes.states()
	for _, s := range allStates {
		to <- prometheus.MustNewConstMetric(descNodes, prometheus.GaugeValue, float64(count[s]), string(s))
	}
}
