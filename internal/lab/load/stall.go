package load

import (
	"cmp"
	"slices"
	"time"
)

const (
	// stallLag is how late a send must be for the client's CPU itself to have
	// stood still: sending another request takes some tens of µs, and a timer
	// interrupt in a nested virtual machine up to a hundred.
	stallLag = 150 * time.Microsecond
	// stallAftermath is how long after a stall its backlog, sent at once, may
	// still queue in the service. It is the same whatever the service does,
	// so that the choice of what is left out cannot depend on the outcome.
	stallAftermath = 2 * time.Millisecond
)

// A span is a stretch of the run, in ns since its start.
type span struct{ from, to int64 }

// stalls finds when the client was not running: its CPUs were taken by an
// interrupt, by another task, or by the hypervisor. Requests that were due
// then say nothing about the service: they were sent late, in a burst that no
// user made. A stall of one thread spoils the requests of all, since the burst
// meets them in the service.
//
// This does not hide a slow service: what is due while the service is slow is
// sent on time, unless all connections are taken, and then it has no lag.
func stalls(threads []*thread) []span {
	var all []span
	for _, t := range threads {
		for i, due := range t.record.due {
			if lag := int64(t.record.lag[i]); lag != int64(noLag) && lag >= int64(stallLag) {
				all = append(all, span{due, due + lag + int64(stallAftermath)})
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var merged []span
	for _, s := range all {
		if n := len(merged); n > 0 && s.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, s.to)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// covers reports whether at falls into one of the spans, which are in order.
func covers(spans []span, at int64) bool {
	i, found := slices.BinarySearchFunc(spans, at, func(s span, at int64) int { return cmp.Compare(s.from, at) })
	return found || i > 0 && at < spans[i-1].to
}
