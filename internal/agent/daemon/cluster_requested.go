package daemon

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// onItsWay is for how long at least a pod may come that the scheduler chose by an
// amount from before: that is told, published and seen by the scheduler seconds
// later.
const onItsWay = 30 * time.Second

// mostRequested bounds what pods request together: far above what any machine
// has, and countable wherever it is read.
const mostRequested = 1 << 54

// requested is what running pods request of batch resources and do not lose while
// they run: no less is published (manager.Decide).
//
// A pod that comes when the others request all that there is does not count until
// there is enough: where work waits in a queue the scheduler fills a gap within
// milliseconds, and what pods request in sum would never fall to what the formula
// gives.
type requested struct {
	cpu    pledge[unit.MilliCPU]
	memory pledge[unit.Bytes]
}

// take takes the amounts of a turn and the pods that run, and returns what those
// that count request.
func (r *requested) take(at time.Time, b node.Batch, running []*corev1.Pod) (unit.MilliCPU, unit.Bytes) {
	cpu, memory := make([]unit.MilliCPU, len(running)), make([]unit.Bytes, len(running))
	for i, p := range running {
		cpu[i], memory[i] = kube.Requested(p)
	}
	return r.cpu.take(at, b.CPU, running, cpu), r.memory.take(at, b.Memory, running, memory)
}

// A pledge is which pods count for one resource.
type pledge[T unit.MilliCPU | unit.Bytes] struct {
	// most is the largest amount since a time, and before that of the stretch of
	// onItsWay before.
	most, before T
	since        time.Time
	count        map[string]bool // by kube.UID; nil: nobody has looked yet
}

func (g *pledge[T]) take(at time.Time, a node.Amount[T], running []*corev1.Pod, each []T) (sum T) {
	if d := at.Sub(g.since); d < 0 || d > onItsWay {
		g.before, g.most, g.since = g.most, 0, at
	}
	g.most = max(g.most, a.Value, a.Formula)
	all := total(each, func(int) bool { return true })
	// What nobody has worked out yet says nothing of the pods, and those that an
	// agent finds when it starts came before it. A node that cannot see its services
	// any more lets nobody in.
	enough := g.count == nil || a.Policy == "" || a.Degraded == node.Unmeasured || all <= max(g.before, g.most)
	count := make(map[string]bool, len(running))
	for _, p := range running {
		if uid := kube.UID(p); enough || g.count[uid] {
			count[uid] = true
		}
	}
	g.count = count
	return total(each, func(i int) bool { return count[kube.UID(running[i])] })
}

func total[T unit.MilliCPU | unit.Bytes](each []T, counts func(int) bool) (sum T) {
	for i, v := range each {
		if counts(i) {
			sum = min(mostRequested, sum+min(mostRequested, v))
		}
	}
	return sum
}
