package record

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// waited is how much longer each waiter has waited for each runner since the
// line before, in the order of the list, up to the last that has. Nil: the
// list stands in full.
type waited []time.Duration

// waitedSince returns nil if the two lists are not of the same pairs.
func waitedSince(last, now []node.Wait) waited {
	if len(last) != len(now) || len(now) == 0 {
		return nil
	}
	all := make(waited, len(now))
	end := 0
	for i, w := range now {
		before := last[i]
		if before.Waiter != w.Waiter || before.Runner != w.Runner {
			return nil
		}
		if all[i] = w.Time - before.Time; all[i] != 0 {
			end = i + 1
		}
	}
	return all[:end]
}

// after returns the list that follows that of the line before.
func (w waited) after(last []node.Wait) []node.Wait {
	now := slices.Clone(last)
	for i := range min(len(w), len(now)) {
		now[i].Time += w[i]
	}
	return now
}

// counted is by how much each of some counters has grown since the line
// before, up to the last that has, modulo 2⁶⁴. Nil: they stand in full.
type counted []uint64

// countedSince returns nil if there are not as many counters as before.
func countedSince(last, now []uint64) counted {
	if len(last) != len(now) || len(now) == 0 {
		return nil
	}
	all := make(counted, len(now))
	end := 0
	for i, n := range now {
		if all[i] = n - last[i]; all[i] != 0 {
			end = i + 1
		}
	}
	return all[:end]
}

// after returns the counters that follow those of the line before.
func (c counted) after(last []uint64) []uint64 {
	now := slices.Clone(last)
	for i := range min(len(c), len(now)) {
		now[i] += c[i]
	}
	return now
}
