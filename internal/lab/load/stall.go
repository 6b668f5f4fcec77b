package load

import (
	"cmp"
	"slices"
	"time"
)

const (
	// stallLag is the lag from which the client's CPU counts as stalled. Smaller
	// lags are usual: another request that is sent first takes some tens of µs,
	// and a timer interrupt in a nested virtual machine takes up to 100 µs.
	stallLag = 150 * time.Microsecond
	// stallAftermath is the time after a stall in which the burst of late
	// requests may still queue in the service. It is a constant, so that the
	// service has no influence on which requests are left out.
	stallAftermath = 2 * time.Millisecond
)

// A span is a part of the run, in ns since its start.
type span struct{ from, to int64 }

// stalls returns the times in which the client did not run because an
// interrupt, another task or the hypervisor used its CPUs. Requests that were
// due in these times say nothing about the service: the client sent them late,
// in a burst that no user made. A stall of one thread spoils the requests of
// all threads, because the burst slows them down in the service.
//
// This does not hide a slow service. If the service is slow when a request is
// due, the request is still sent on time, and so has no large lag. If all
// connections are busy, the request has no lag at all.
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

// covers reports whether the time at lies in one of the spans, which are in order.
func covers(spans []span, at int64) bool {
	i, found := slices.BinarySearchFunc(spans, at, func(s span, at int64) int { return cmp.Compare(s.from, at) })
	return found || i > 0 && at < spans[i-1].to
}
