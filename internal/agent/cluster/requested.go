package cluster

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// arrivalTime is the time for which pods may still arrive after a reduction of
// the batch resources, because they were placed before it. The agent, the
// manager and the scheduler each add a delay.
const arrivalTime = 30 * time.Second

// maxRequested is the largest sum of requests that is reported. The manager
// refuses a report with quantity.Max or more.
const maxRequested = quantity.Max - 1

// requested adds up the batch resources that the running pods request. The manager
// publishes at least this amount (manager.Decide), but some pods do not count.
//
// A new pod counts only if all pods together fit into the amount. Otherwise the
// scheduler would fill each gap from a queue of work within milliseconds, and the
// sum of requests would never fall to the amount of the formula.
type requested struct {
	cpu    pledge[unit.MilliCPU]
	memory pledge[unit.Bytes]

	// running is the list of running pods. In most ticks, it is the slice of the
	// last tick.
	running []*corev1.Pod
	uids    []string // kube.UID of each pod in running
	cpus    []unit.MilliCPU
	bytes   []unit.Bytes
}

// take updates the state with the batch resources of a tick and the running
// pods. It returns the sums of the requests of those pods that count.
func (r *requested) take(at time.Time, b node.Batch, running []*corev1.Pod) (unit.MilliCPU, unit.Bytes) {
	if len(r.running) != len(running) || len(running) > 0 && &r.running[0] != &running[0] {
		r.running, r.uids = running, make([]string, len(running))
		r.cpus, r.bytes = make([]unit.MilliCPU, len(running)), make([]unit.Bytes, len(running))
		for i, p := range running {
			r.uids[i] = kube.UID(p)
			r.cpus[i], r.bytes[i] = kube.Requested(p)
		}
	}
	return r.cpu.take(at, b.CPU, r.uids, r.cpus), r.memory.take(at, b.Memory, r.uids, r.bytes)
}

// A pledge is the set of pods that count for one resource, such as CPU.
type pledge[T unit.MilliCPU | unit.Bytes] struct {
	// largest is the largest amount of batch resources in the current interval of
	// length arrivalTime. before is the largest amount in the previous interval.
	largest, before T
	since           time.Time
	count           map[string]bool // by kube.UID; nil: before the first tick
}

func (g *pledge[T]) take(at time.Time, a node.Amount[T], running []string, each []T) (sum T) {
	if d := at.Sub(g.since); d < 0 || d > arrivalTime {
		g.before, g.largest, g.since = g.largest, 0, at
	}
	g.largest = max(g.largest, a.Value, a.Formula)
	all := total(each, func(int) bool { return true })
	// All pods count in these cases: the node has no batch amount; this is the
	// agent's first tick, so the pods are older than the agent; the node has not
	// measured its services, so its amount admits no new pod; or all pods fit.
	enough := g.count == nil || a.Policy == "" || a.Degraded == node.Unmeasured || all <= max(g.before, g.largest)
	if enough && g.count != nil && len(g.count) == len(running) && !slices.ContainsFunc(running, func(uid string) bool { return !g.count[uid] }) {
		return all
	}
	count := make(map[string]bool, len(running))
	for _, uid := range running {
		if enough || g.count[uid] {
			count[uid] = true
		}
	}
	g.count = count
	return total(each, func(i int) bool { return count[running[i]] })
}

func total[T unit.MilliCPU | unit.Bytes](each []T, counts func(int) bool) (sum T) {
	for i, v := range each {
		if counts(i) {
			sum = min(maxRequested, sum+min(maxRequested, v))
		}
	}
	return sum
}
