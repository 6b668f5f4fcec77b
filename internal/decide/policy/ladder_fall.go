package policy

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// fallsCount is how long a mechanism failure counts.
	fallsCount = time.Hour
	// ejections is the number of ejections within fallsCount after which a
	// mechanism is not tried again.
	ejections = 3
	// firstRetry is the wait after a failure. Every further failure doubles it,
	// up to lastRetry.
	firstRetry = time.Minute
	lastRetry  = 30 * time.Minute
)

// fallsOf adds new failures to the remembered ones, and drops expired ones, the
// oldest first. A remembered failure in the future has another boot's clock and
// is dropped; a new one gets the present time.
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

// lastOf returns the index of the last failure of a mechanism, or -1.
func lastOf(falls []node.Fall, r node.Rung) int {
	for i := len(falls) - 1; i >= 0; i-- {
		if falls[i].Rung == r {
			return i
		}
	}
	return -1
}

// waitsFor returns how often a mechanism failed since an operator's last
// choice, whether that was too often, and when it is tried again; zero: it did
// not fail.
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
