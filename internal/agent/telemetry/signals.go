package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// delayBuckets lists the buckets of node.RunQueueDelay that are also buckets of
// tenon_run_queue_delay_seconds. They range from 4 µs to 1 s, and are densest
// around the usual objectives. If all 29 buckets were used, a hundred services
// would make up most of a scrape.
var delayBuckets = []int{4, 6, 8, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22}

var (
	descDelay = desc("tenon_run_queue_delay_seconds", "Time that threads of a latency-sensitive workload waited for a CPU.", workloadLabels...)
	descWait  = desc("tenon_run_queue_wait_seconds_total", "Time that a latency-sensitive workload waited while others ran, by the class of the runner.", "waiter", "namespace", "pod", "runner_class")
)

// signals counts events, and measures how fast the agent reacts to them.
type signals struct {
	events   *prometheus.CounterVec
	reaction *prometheus.HistogramVec
}

func newSignals() signals {
	s := signals{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenon_events_total", Help: "Events that started a tick early, by kind.",
		}, []string{"kind"}),
		reaction: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tenon_reaction_seconds", Help: "Time from an event to the last write of the tick that it caused, for ticks with a write.",
			Buckets: prometheus.ExponentialBuckets(500e-6, 2, 12), // 0.5 ms to 1 s
		}, []string{"kind"}),
	}
	for _, k := range tick.EventKinds {
		s.events.WithLabelValues(string(k))
	}
	return s
}

func (s signals) observe(t tick.Tick) {
	wrote := false
	for _, o := range t.Done {
		wrote = wrote || o.Err == nil
	}
	for _, e := range t.Events {
		s.events.WithLabelValues(string(e.Kind)).Add(float64(e.Count()))
		if wrote {
			s.reaction.WithLabelValues(string(e.Kind)).Observe(t.EndTime().Sub(e.At).Seconds())
		}
	}
}

// emitDelay emits the histogram of a workload's waits. It emits nothing if waits
// are not counted by length.
func (e emitter) emitDelay(d node.RunQueueDelay, labels ...string) {
	sum, known := d.Sum.Value()
	if !known || len(d.Counts) == 0 {
		return
	}
	buckets := make(map[float64]uint64, len(delayBuckets))
	var count uint64
	for i, at := 0, 0; i < len(d.Counts); i++ {
		count += d.Counts[i]
		if at < len(delayBuckets) && i == delayBuckets[at] {
			buckets[node.DelayBound(i).Seconds()] = count
			at++
		}
	}
	e <- prometheus.MustNewConstHistogram(descDelay, count, sum.Seconds(), buckets, labels...)
}

// emitWaits emits how long the workloads in shown waited, by the class of the
// thread that had the CPU. The workloads of a class that share the name
// node.RestOf have a common sum.
func (e emitter) emitWaits(s node.Snapshot, shown []node.Workload) {
	has := make(map[node.WorkloadID]waiter, len(shown))
	for _, w := range shown {
		namespace, pod := podOf(w)
		has[w.ID] = waiter{label(w.ID), namespace, pod}
	}
	classes := map[node.WorkloadID]string{
		node.RunnerKernel: "kernel", node.RunnerIdle: "idle", node.RunnerOthers: "others", node.RunnerElsewhere: "elsewhere",
	}
	for _, c := range node.Classes {
		classes[node.RestOf(c)], has[node.RestOf(c)] = string(c), waiter{name: label(node.RestOf(c))}
	}
	for _, w := range s.Workloads {
		classes[w.ID] = string(w.Class)
	}
	type pair struct {
		waiter
		class string
	}
	sums := map[pair]time.Duration{}
	for _, w := range s.Waits {
		if class, of := classes[w.Runner], has[w.Waiter]; class != "" && of != (waiter{}) {
			sums[pair{of, class}] += w.Time
		}
	}
	for p, sum := range sums {
		e.seconds(descWait, node.Some(sum), p.name, p.namespace, p.pod, p.class)
	}
}

// A waiter is a workload that waits, with the namespace and the name of its pod.
type waiter struct{ name, namespace, pod string }
