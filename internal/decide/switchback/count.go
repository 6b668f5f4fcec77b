package switchback

import (
	"math"
	"time"
)

// A Count says how often the threads of a service waited for a CPU, and for how
// long. It counts waits for all other threads of the node, and not only for BE.
type Count struct {
	Waits  int64         `json:"n"`
	Waited time.Duration `json:"ns"`
}

func (c Count) plus(d Count) Count { return Count{c.Waits + d.Waits, c.Waited + d.Waited} }

// mean returns the mean length of a wait in ns.
func (c Count) mean() float64 { return float64(c.Waited) / float64(max(c.Waits, 1)) }

// since returns the waits of each service between two readings. It omits
// workloads that only one reading has, and counters that were reset.
func since(before, after map[string]Count) map[string]Count {
	grown := make(map[string]Count, len(after))
	for id, now := range after {
		then, had := before[id]
		if had && now.Waits >= then.Waits && now.Waited >= then.Waited {
			name := ServiceName(id)
			grown[name] = grown[name].plus(Count{now.Waits - then.Waits, now.Waited - then.Waited})
		}
	}
	return grown
}

const (
	// leastWaits is the least number of waits in an epoch. With fewer, the
	// epoch does not count: for one service, or for all of them together.
	leastWaits = 20
	// resolution is added to the mean of each epoch, in ns, so that the ratio
	// also exists for epochs without any wait. The counters are less precise
	// than that.
	resolution = 10
)

// pairOf compares the two epochs of a pair. all is the log of a ratio: the mean
// wait with the candidate, divided by the mean wait without it. The weight of a
// service is the number of its waits in both epochs, so that a service that is
// busier in one of them does not shift the ratio. one has the ratio of each
// service alone. ok is false if there were too few waits.
func pairOf(without, with map[string]Count) (all float64, one map[string]float64, ok bool) {
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
		a += weight * x.mean()
		b += weight * y.mean()
		waitsA += x.Waits
		waitsB += y.Waits
		if min(x.Waits, y.Waits) >= leastWaits {
			one[name] = math.Log((y.mean() + resolution) / (x.mean() + resolution))
		}
	}
	if min(waitsA, waitsB) < leastWaits {
		return 0, nil, false
	}
	weight := float64(waitsA + waitsB)
	return math.Log((b/weight + resolution) / (a/weight + resolution)), one, true
}
