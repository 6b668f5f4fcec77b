package switchback

import (
	"math"
	"time"
)

// A Count says how often the threads of a service waited for a CPU, and for how
// long in total. Waits for BE and waits for other work count.
type Count struct {
	Waits  int64         `json:"n"`
	Waited time.Duration `json:"ns"`
	// Throttled is the time for which the service's own quota throttled it.
	Throttled time.Duration `json:"throttled_ns,omitempty"`
}

// Plus returns the sum of c and d.
func (c Count) Plus(d Count) Count {
	return Count{c.Waits + d.Waits, c.Waited + d.Waited, c.Throttled + d.Throttled}
}

// Mean returns the mean length of a wait in ns.
func (c Count) Mean() float64 { return float64(c.Waited) / float64(max(c.Waits, 1)) }

// throttledShare limits the throttling of a workload in an epoch that counts for
// it: to 1/throttledShare of its waiting.
const throttledShare = 20

// WaitsBetween returns how much each service waited between two readings. It
// leaves out workloads that are in only one of the readings, and counters that
// were reset. It also leaves out workloads whose own quota throttled them: the
// kernel counts that time as waiting, and no mechanism can change it.
func WaitsBetween(before, after map[string]Count) map[string]Count {
	grown := make(map[string]Count, len(after))
	for id, now := range after {
		then, had := before[id]
		if !had || now.Waits < then.Waits || now.Waited < then.Waited {
			continue
		}
		more := Count{now.Waits - then.Waits, now.Waited - then.Waited, now.Throttled - then.Throttled}
		if more.Throttled <= more.Waited/throttledShare {
			name := ServiceName(id)
			grown[name] = grown[name].Plus(more)
		}
	}
	return grown
}

const (
	// An epoch counts for a service only if the service has at least minWaits
	// waits in it. It counts at all only if all services together have that
	// many.
	minWaits = 20
	// resolution, in ns, is added to the mean of each epoch, so that an epoch
	// without waits has a ratio, too. The counters are less precise than 10 ns.
	resolution = 10
)

// PairOf compares the two epochs of a pair. all is the logarithm of a ratio:
// the mean wait with the candidate, divided by the mean wait without it. In both
// means, a service has the same weight: the sum of its waits in the two epochs.
// So the ratio stays the same if a service only waits more often in one epoch.
// one holds the same logarithm for each service alone. If there were too few
// waits, ok is false.
func PairOf(without, with map[string]Count) (all float64, one map[string]float64, ok bool) {
	var a, b float64
	var waitsA, waitsB int64
	one = map[string]float64{}
	for _, name := range sortedNames(with) { // sums of floats depend on their order
		x, had := without[name]
		y := with[name]
		if !had || x.Waits == 0 || y.Waits == 0 {
			continue
		}
		weight := float64(x.Waits + y.Waits)
		a += weight * x.Mean()
		b += weight * y.Mean()
		waitsA += x.Waits
		waitsB += y.Waits
		if min(x.Waits, y.Waits) >= minWaits {
			one[name] = math.Log((y.Mean() + resolution) / (x.Mean() + resolution))
		}
	}
	if min(waitsA, waitsB) < minWaits {
		return 0, nil, false
	}
	weight := float64(waitsA + waitsB)
	return math.Log((b/weight + resolution) / (a/weight + resolution)), one, true
}
