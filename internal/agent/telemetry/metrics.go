// Package telemetry exports the agent's metrics to Prometheus, and answers
// health probes. All values come from the ticks of the loop. docs/metrics.md
// lists the metrics.
package telemetry

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// MaxWorkloads is the maximum number of workloads with metrics of their own,
// which bounds the number of series. Latency-sensitive workloads come first,
// then the others, both by name. tenon_workloads_omitted counts the workloads
// without metrics of their own.
const MaxWorkloads = 200

// Metrics computes metrics from ticks, and can be scraped at any time.
type Metrics struct {
	registry *prometheus.Registry
	ticks    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	steps    *prometheus.CounterVec
	classCPU *prometheus.CounterVec
	evicted  *prometheus.CounterVec
	signals  signals
	health   *health.Health // nil: probes show no trouble

	mu   sync.Mutex
	seen uint64    // number of ticks
	last tick.Tick // the last tick that could read the node
	used map[node.WorkloadID]time.Duration
	// at is the end of the last tick, and read that of the last tick that could
	// read the node. period is the time between two ticks. blind is the error of the
	// last tick if it could not read the node.
	started, at, read time.Time
	period            time.Duration
	blind             string
	now               func() time.Time
}

// These label values are the results of a tick and of a step.
const (
	tickOK     = "ok"
	tickFailed = "failed" // some step failed
	tickBlind  = "blind"  // the node could not be read

	stepApplied = "applied"
	stepFailed  = "failed"
)

// New returns the metrics of an agent with the given version.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		ticks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_ticks_total", Help: "Ticks of the loop: ok, failed (some write did), blind (the node could not be read).",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tenon_tick_duration_seconds", Help: "Time that each part of a tick took: sense, decide, act.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2.5, 12), // 50 µs to 1.2 s
		}, []string{"part"}),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_steps_total", Help: "Writes of knobs, by the policy that owns the knob: applied or failed.",
		}, []string{"policy", "outcome"}),
		evicted: newEvictions(),
		classCPU: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_class_cpu_seconds_total", Help: "CPU time that the workloads of each class have used while Tenon saw them.",
		}, []string{"class"}),
		signals: newSignals(),
		used:    map[node.WorkloadID]time.Duration{}, now: time.Now, started: time.Now(),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tenon_build_info", Help: "1, with the version of the agent.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	for _, o := range []string{tickOK, tickFailed, tickBlind} {
		m.ticks.WithLabelValues(o)
	}
	for _, c := range node.Classes {
		m.classCPU.WithLabelValues(string(c))
	}
	m.registry.MustRegister(build, m.ticks, m.duration, m.steps, m.classCPU, m.evicted, m.signals.events, m.signals.reaction, lastTick{m},
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	return m
}

// Show makes the metrics and the probes show the trouble in h. It must be
// called before the first tick.
func (m *Metrics) Show(h *health.Health) { m.health = h }

// count returns the number of ticks.
func (m *Metrics) count() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// Observe records a tick and its error. period is the time to the next tick if
// no event comes.
func (m *Metrics) Observe(t tick.Tick, err error, period time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.period, m.seen = m.now(), period, m.seen+1
	if t.Snapshot.At.IsZero() {
		m.ticks.WithLabelValues(tickBlind).Inc()
		if m.blind = ""; err != nil {
			m.blind = err.Error()
		}
		return
	}
	m.read, m.blind = m.at, ""
	outcome := tickOK
	if err != nil {
		outcome = tickFailed
	}
	m.ticks.WithLabelValues(outcome).Inc()
	m.duration.WithLabelValues("sense").Observe(t.Sense.Seconds())
	m.duration.WithLabelValues("decide").Observe(t.Decide.Seconds())
	m.duration.WithLabelValues("act").Observe(t.Act.Seconds())
	for _, o := range t.Done {
		outcome := stepApplied
		if o.Err != nil {
			outcome = stepFailed
		}
		m.steps.WithLabelValues(o.Step.Owner.String(), outcome).Inc()
	}
	m.signals.observe(t)
	countEvictions(m.evicted, t)
	m.addClasses(t.Snapshot.Workloads)
	m.last = t
}

// addClasses adds each workload's CPU time since the last tick to the sum of its class.
func (m *Metrics) addClasses(workloads []node.Workload) {
	used := make(map[node.WorkloadID]time.Duration, len(workloads))
	for i := range workloads {
		w := &workloads[i]
		now, known := w.Usage.CPU.Value()
		if !known {
			if now, known = m.used[w.ID]; known {
				used[w.ID] = now
			}
			continue
		}
		if before, had := m.used[w.ID]; had && now > before {
			m.classCPU.WithLabelValues(string(w.Class)).Add((now - before).Seconds())
		}
		used[w.ID] = now
	}
	m.used = used
}

// chooseWorkloads returns the workloads that get metrics of their own, and the
// number of the other workloads.
func chooseWorkloads(all []node.Workload) ([]node.Workload, int) {
	if len(all) <= MaxWorkloads {
		return all, 0
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b node.Workload) int {
		if a.Class.Sensitive() != b.Class.Sensitive() {
			if a.Class.Sensitive() {
				return -1
			}
			return 1
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return all[:MaxWorkloads], len(all) - MaxWorkloads
}
