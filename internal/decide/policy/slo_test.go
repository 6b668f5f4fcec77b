package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// waiting has the waits of a workload in a spell. In scenarios it is one of
//
//	web.waits=1000*100us,30*5ms    numbers of waits with their lengths
//	web.turns=1000*600us           number of time slices, with the mean wait before them
//	web.for=be:20ms,web:3ms        the runners for which the workload waited
//	web.waits=?                    its waits are unknown from now on
type waiting struct {
	id     node.WorkloadID
	kind   string
	counts map[time.Duration]uint64
	whose  map[node.WorkloadID]time.Duration
	lost   bool
}

// testBuckets is the number of buckets of the kernel's histogram.
const testBuckets = 29

func readWaiting(t *testing.T, w word) waiting {
	t.Helper()
	id, kind, _ := strings.Cut(w.key, ".")
	all := waiting{id: node.WorkloadID(id), kind: kind, lost: w.val == "?", counts: map[time.Duration]uint64{}, whose: map[node.WorkloadID]time.Duration{}}
	if all.lost {
		return all
	}
	for _, part := range strings.Split(w.val, ",") {
		first, length, _ := strings.Cut(part, map[string]string{"waits": "*", "turns": "*", "for": ":"}[kind])
		d := mustParse(t, word{w.key, length}, time.ParseDuration)
		if kind == "for" {
			all.whose[node.WorkloadID(first)] = d
		} else {
			all.counts[d] = mustParse(t, word{w.key, first}, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
		}
	}
	return all
}

func (n *scene) setObjective(t *testing.T, line string, f []string) {
	t.Helper()
	if len(f) != 2 && len(f) != 3 {
		t.Fatalf("scenario line %q: want an id, a time, and for requests a source", line)
	}
	want := node.Objective{}
	switch {
	case f[1] == "-":
	case len(f) == 3:
		want.Requests.Source = node.RequestSource(f[2])
		want.Requests.Within[slices.IndexFunc(node.Percentiles[:], func(p node.Percentile) bool { return p.Name == "p99" })] = mustParse(t, word{f[0], f[1]}, time.ParseDuration)
	default:
		want.RunQueueDelay = node.Some(mustParse(t, word{f[0], f[1]}, time.ParseDuration))
	}
	for i, w := range n.snap.Workloads {
		if string(w.ID) == f[0] {
			n.snap.Workloads[i].Objective = want
		}
	}
}

// readAnswers reads web.answered=99,1: the numbers of requests that were answered in time,
// and later.
func (p *spell) readAnswers(t *testing.T, w word) {
	t.Helper()
	inTime, late, _ := strings.Cut(w.val, ",")
	parse := func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }
	if p.answered == nil {
		p.answered = map[node.WorkloadID][2]uint64{}
	}
	p.answered[node.WorkloadID(strings.TrimSuffix(w.key, ".answered"))] = [2]uint64{mustParse(t, word{w.key, inTime}, parse), mustParse(t, word{w.key, late}, parse)}
}

// answer adds requests to the counters of workloads, which are read now. The others keep
// their last reading. The bucket of those that were answered in time ends at the target.
func (n *scene) answer(all map[node.WorkloadID][2]uint64) {
	n.answered = maps.Clone(n.answered)
	if n.answered == nil {
		n.answered = map[node.WorkloadID]node.Requests{}
	}
	for _, w := range n.snap.Workloads {
		more, read := all[w.ID]
		if !read {
			continue
		}
		counts := []uint64{more[0], more[1]}
		for i, had := range n.answered[w.ID].Counts {
			counts[i] += had
		}
		n.answered[w.ID] = node.Requests{At: n.snap.At, Bounds: []time.Duration{slices.Max(w.Objective.Requests.Within[:])}, Counts: counts}
	}
}

// wait adds waits to the counters.
func (n *scene) wait(all []waiting) {
	n.delay = maps.Clone(n.delay)
	if n.delay == nil {
		n.delay = map[node.WorkloadID]node.RunQueueDelay{}
	}
	n.snap.Waits = slices.Clone(n.snap.Waits)
	for _, w := range all {
		d := n.delay[w.id]
		sum, turns := d.Sum.Or(0), d.Timeslices.Or(0)
		for length, count := range w.counts {
			sum += length * time.Duration(count)
			turns += int64(count)
		}
		switch {
		case w.lost:
			delete(n.delay, w.id)
			continue
		case w.kind == "for":
			for runner, length := range w.whose {
				i := slices.IndexFunc(n.snap.Waits, func(x node.Wait) bool { return x.Waiter == w.id && x.Runner == runner })
				if i < 0 {
					i = len(n.snap.Waits)
					n.snap.Waits = append(n.snap.Waits, node.Wait{Waiter: w.id, Runner: runner})
				}
				n.snap.Waits[i].Time += length
			}
			continue
		case w.kind == "turns":
			d.Timeslices = node.Some(turns)
		default:
			counts := make([]uint64, testBuckets)
			copy(counts, d.Counts)
			for length, count := range w.counts {
				b := 0
				for b < testBuckets-1 && length >= node.DelayBound(b) {
					b++
				}
				counts[b] += count
			}
			d.Counts = counts
		}
		d.Sum = node.Some(sum)
		n.delay[w.id] = d
	}
}
