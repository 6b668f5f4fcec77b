package plugin

import (
	"strconv"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

// counts are numbers of events, which the keeper counts for the metrics.
type counts struct {
	refused map[cpus.Code]int // attempts to schedule a pod, by the reason of the first node that had no CPUs for it
	moved   int               // pods whose node reported other CPUs than were chosen
}

// movedPods returns the pods that, according to a report, own other CPUs than
// the scheduler chose. It counts those that are not in the last result
// (before). The caller holds k.mu.
func (k *keeper) movedPods(r place.Report, before map[place.UID]bool) map[place.UID]bool {
	var now map[place.UID]bool
	for uid, a := range r.Pods {
		c, _, known := k.ledger.Contract(uid)
		if !known || a.Policy != cpus.Exclusive || a.CPUs.Empty() || c.CPUs.Empty() || c.CPUs == a.CPUs {
			continue
		}
		if now == nil {
			now = map[place.UID]bool{}
		}
		now[uid] = true
		if !before[uid] {
			k.counts.moved++
		}
	}
	return now
}

// These are the plugin's metrics, in addition to those of kube-scheduler.
var (
	cpusDesc = metrics.NewDesc("tenon_scheduler_cpus", "CPUs of the nodes that report them: own, held by one pod; reserved, for no pod; or open, all others",
		[]string{"state"}, nil, metrics.ALPHA, "")
	strandedDesc = metrics.NewDesc("tenon_scheduler_stranded_cpus", "CPUs that are free for exclusive use, but not for a pod of this number of CPUs within one L3 cache",
		[]string{"size"}, nil, metrics.ALPHA, "")
	waitingDesc = metrics.NewDesc("tenon_scheduler_waiting_pods", "Pods that wait for CPUs", nil, nil, metrics.ALPHA, "")
	refusedDesc = metrics.NewDesc("tenon_scheduler_refused_attempts_total", "Attempts to schedule a pod in which a node had no CPUs for it, by the reason of the first such node",
		[]string{"reason"}, nil, metrics.ALPHA, "")
	movedDesc = metrics.NewDesc("tenon_scheduler_moved_pods_total", "Pods with other CPUs on their node than were chosen for them", nil, nil, metrics.ALPHA, "")
)

// sizes are numbers of CPUs. A metric shows the stranded CPUs for each of these
// sizes.
var sizes = [...]int{2, 4, 8, 16}

// A collector collects the metrics of the ledgers of this process.
type collector struct{ metrics.BaseStableCollector }

var registered sync.Once

func register() { registered.Do(func() { legacyregistry.CustomMustRegister(&collector{}) }) }

// DescribeWithStability implements metrics.StableCollector.
func (*collector) DescribeWithStability(to chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{cpusDesc, strandedDesc, waitingDesc, refusedDesc, movedDesc} {
		to <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (*collector) CollectWithStability(to chan<- metrics.Metric) {
	keepers.Lock()
	defer keepers.Unlock()
	for _, k := range keepers.of { // a process has one, except in tests
		k.collect(to)
	}
}

// collect adds up the views of all nodes. It takes some microseconds for each
// node.
func (k *keeper) collect(to chan<- metrics.Metric) {
	state := map[string]int{"own": 0, "reserved": 0, "open": 0}
	var stranded [len(sizes)]int
	k.views.Load().eachView(func(v *place.View) {
		m := v.Map()
		if m == nil {
			return
		}
		open, reserved := v.Open(), v.Reserved().Intersect(m.All())
		state["open"] += open.Len()
		state["reserved"] += reserved.Len()
		state["own"] += m.Len() - open.Union(reserved).Len()
		for i, n := range sizes {
			stranded[i] += v.Stranded(n)
		}
	})
	gauge := func(d *metrics.Desc, v int, labels ...string) {
		to <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, float64(v), labels...)
	}
	for name, n := range state {
		gauge(cpusDesc, n, name)
	}
	for i, n := range sizes {
		gauge(strandedDesc, stranded[i], strconv.Itoa(n))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	gauge(waitingDesc, len(k.failed))
	for why, n := range k.counts.refused {
		to <- metrics.NewLazyConstMetric(refusedDesc, metrics.CounterValue, float64(n), why.Text())
	}
	to <- metrics.NewLazyConstMetric(movedDesc, metrics.CounterValue, float64(k.counts.moved))
}
