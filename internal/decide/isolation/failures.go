package isolation

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// rememberedFor is the time for which Tenon remembers a mechanism failure.
	rememberedFor = time.Hour
	// If a mechanism fails failureLimit times while it is in use, Tenon tries
	// it again only after the first of these failures is forgotten.
	failureLimit = 3
	// firstRetry is the time that Tenon waits after the first failure before it
	// tries again. The wait doubles with every further failure, up to lastRetry.
	firstRetry = time.Minute
	lastRetry  = 30 * time.Minute
)

// FailuresOf adds new failures to the remembered ones, and drops expired ones.
// The result begins with the oldest failure. If the time of a remembered
// failure is in the future, the failure is from before a reboot, and FailuresOf
// drops it.
func FailuresOf(known, seen []node.Failure, at time.Time) []node.Failure {
	var all []node.Failure
	add := func(f node.Failure, future bool) {
		age := at.Sub(f.At)
		same := func(o node.Failure) bool { return o.Mechanism == f.Mechanism && o.At.Equal(f.At) }
		if age < rememberedFor && (age >= 0 || future) && !slices.ContainsFunc(all, same) {
			all = append(all, f)
		}
	}
	for _, f := range seen {
		add(f, true)
	}
	for _, f := range known {
		add(f, false)
	}
	slices.SortStableFunc(all, func(a, b node.Failure) int { return a.At.Compare(b.At) })
	return all
}

// LastOf returns the index of the last failure of a mechanism, or -1.
func LastOf(failures []node.Failure, r node.Mechanism) int {
	for i := len(failures) - 1; i >= 0; i-- {
		if failures[i].Mechanism == r {
			return i
		}
	}
	return -1
}

// RetryOf returns how many failures a mechanism had since an operator last
// requested it (fell), and whether these are too many (down). retry is the time
// of the next attempt, or zero without a failure.
func RetryOf(r node.Mechanism, failures []node.Failure, asked time.Time) (fell int, down bool, retry time.Time) {
	var ejected []time.Time
	for _, f := range failures {
		if f.Mechanism != r || !f.At.After(asked) {
			continue
		}
		if fell++; !f.Refused {
			ejected = append(ejected, f.At)
		}
		retry = f.At.Add(min(firstRetry<<(fell-1), lastRetry))
	}
	if n := len(ejected); n >= failureLimit {
		if over := ejected[n-failureLimit].Add(rememberedFor); over.After(retry) {
			retry = over
		}
		return fell, true, retry
	}
	return fell, false, retry
}
