package record

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A waitGrowth lists the growth of each entry of node.Snapshot.Waits since the
// previous line of the record. The entries after the last one that grew are
// omitted. If a waitGrowth is nil, the line has the waits themselves.
type waitGrowth []time.Duration

// waitedSince returns how much the waits have grown. It returns nil if the two
// lists have different pairs of waiter and runner.
func waitedSince(last, now []node.Wait) waitGrowth {
	if len(last) != len(now) || len(now) == 0 {
		return nil
	}
	all := make(waitGrowth, len(now))
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

// addTo returns the waits of the previous line plus the differences.
func (w waitGrowth) addTo(last []node.Wait) []node.Wait {
	now := slices.Clone(last)
	for i := range min(len(w), len(now)) {
		now[i].Time += w[i]
	}
	return now
}

// A counterGrowth lists the growth of each counter in a list since the previous
// line, modulo 2⁶⁴. The counters after the last one that changed are omitted. If
// a counterGrowth is nil, the line has the counters themselves.
type counterGrowth []uint64

// countedSince returns how much the counters have grown. It returns nil if
// their number has changed.
func countedSince(last, now []uint64) counterGrowth {
	if len(last) != len(now) || len(now) == 0 {
		return nil
	}
	all := make(counterGrowth, len(now))
	end := 0
	for i, n := range now {
		if all[i] = n - last[i]; all[i] != 0 {
			end = i + 1
		}
	}
	return all[:end]
}

// addTo returns the counters of the previous line plus the differences.
func (c counterGrowth) addTo(last []uint64) []uint64 {
	now := slices.Clone(last)
	for i := range min(len(c), len(now)) {
		now[i] += c[i]
	}
	return now
}
