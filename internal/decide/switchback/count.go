package switchback

import (
	"math"
	"time"
)

// A Count is how often the threads of a service waited for a CPU, and how long:
// for all other threads of the node, and not only for BE.
type Count struct {
	Waits  int64         `json:"n"`
	Waited time.Duration `json:"ns"`
}

func (c Count) plus(d Count) Count { return Count{c.Waits + d.Waits, c.Waited + d.Waited} }

// mean is the time of a wait in ns.
func (c Count) mean() float64 { return float64(c.Waited) / float64(max(c.Waits, 1)) }

// since returns the waits of each service between two readings of workloads, of
// those that both have. A counter that began anew is left out.
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
	// leastWaits is the number of waits in an epoch from which it counts, for a
	// service and for all of them together.
	leastWaits = 20
	// resolution is added to the mean of each epoch, in ns, so that epochs
	// without any waiting have a ratio. Waits are counted with less precision.
	resolution = 10
)

// pairOf compares the two epochs of a pair. all is the log of the ratio of the
// waiting for each wait, with the candidate to without it. Each service has the
// weight of its waits in both epochs, so that a service that is busier in one of
// them does not shift the ratio. one has the same of each service alone. It is
// false if the services waited too rarely.
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
