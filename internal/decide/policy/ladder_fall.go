package policy

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// fallsCount is for how long a fall counts.
	fallsCount = time.Hour
	// ejections is from how many ejections in that time on a rung stays down.
	ejections = 3
	// firstRetry is how long a rung waits after a fall. Every further fall
	// doubles that, up to lastRetry.
	firstRetry = time.Minute
	lastRetry  = 30 * time.Minute
)

// fallsOf adds the falls that are seen to those that are remembered, and drops
// those that do not count any more, the oldest first. One that is remembered
// and lies in the future comes from another boot with another clock; one that is
// seen there is as good as now.
func fallsOf(known, seen []node.Fall, at time.Time) []node.Fall {
	var all []node.Fall
	add := func(f node.Fall, future bool) {
		age := at.Sub(f.At)
		same := func(o node.Fall) bool { return o.Rung == f.Rung && o.At.Equal(f.At) }
		if age < fallsCount && (age >= 0 || future) && !slices.ContainsFunc(all, same) {
			all = append(all, f)
		}
	}
	for _, f := range seen {
		add(f, true)
	}
	for _, f := range known {
		add(f, false)
	}
	slices.SortStableFunc(all, func(a, b node.Fall) int { return a.At.Compare(b.At) })
	return all
}

// lastOf is the index of the last fall of a rung; -1: there is none.
func lastOf(falls []node.Fall, r node.Rung) int {
	for i := len(falls) - 1; i >= 0; i-- {
		if falls[i].Rung == r {
			return i
		}
	}
	return -1
}

// waitsFor returns how often a rung fell since an operator asked, whether that
// was too often, and when it is tried again; zero: it did not fall.
func waitsFor(r node.Rung, falls []node.Fall, asked time.Time) (fell int, down bool, retry time.Time) {
	var ejected []time.Time
	for _, f := range falls {
		if f.Rung != r || !f.At.After(asked) {
			continue
		}
		if fell++; !f.Refused {
			ejected = append(ejected, f.At)
		}
		retry = f.At.Add(min(firstRetry<<(fell-1), lastRetry))
	}
	if n := len(ejected); n >= ejections {
		if over := ejected[n-ejections].Add(fallsCount); over.After(retry) {
			retry = over
		}
		return fell, true, retry
	}
	return fell, false, retry
}
