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
	// requests may still queue in the service. It is a constant, so that no
	// answer of the service decides which requests are left out.
	stallAftermath = 2 * time.Millisecond
	// readTime is the time after a stall in which the thread still reads the
	// answers that arrived in it.
	readTime = 500 * time.Microsecond
)

// A span is a part of the run, in ns since its start.
type span struct{ from, to int64 }

// stalls returns the times in which the client did not run because an
// interrupt, another task or the hypervisor used its CPUs. Requests that were
// due in these times say nothing about the service: the client sent them late,
// in a burst that no user made. A stall of one thread spoils the requests of
// all threads, because the burst slows them down in the service.
//
// A slow service does not make a request late: the client still sends it on
// time, and a request that waits for a connection has no lag at all. But a
// client that shares its CPU with other work is stalled more often while it
// waits for answers, because it polls then, and the kernel shares the CPU
// fairly. The result counts the requests of such times apart (delays).
func stalls(threads []*thread) []span {
	var all []span
	for _, t := range threads {
		for _, s := range t.record.stalls() {
			all = append(all, span{s.from, s.to + int64(stallAftermath)})
		}
	}
	return merged(all)
}

// stalls returns the times in which one thread did not run, each from the first
// request that was due in it until it was sent.
func (r *record) stalls() []span {
	var own []span
	for i, due := range r.due {
		if lag := int64(r.lag[i]); lag != int64(noLag) && lag >= int64(stallLag) {
			own = appendMerged(own, span{due, due + lag})
		}
	}
	return own
}

// delays returns the times in which the service had left a request unanswered
// for more than stallAftermath. If the thread read an answer when it had just
// been stalled, the answer may have arrived at any time of the stall. Then the
// delay ends with the begin of the stall: a stall of the client makes no delay.
func delays(threads []*thread, stalled []span) []span {
	var all []span
	for _, t := range threads {
		var own []span
		stalls := t.record.stalls()
		for i, due := range t.record.due {
			latency := t.record.latency[i]
			if latency >= noLatency {
				continue
			}
			sent, answered := due, due+int64(latency)*int64(LatencyUnit)
			if lag := t.record.lag[i]; lag != noLag {
				sent += int64(lag)
			} else if s, ok := covering(stalled, due); ok {
				sent = s.to // the burst after the stall took the connections
			}
			from := sent + int64(stallAftermath)
			if from >= answered {
				continue
			}
			if s, ok := lastBefore(stalls, answered); ok && answered < s.to+int64(readTime) {
				answered = s.from
			}
			if from < answered {
				own = appendMerged(own, span{from, answered})
			}
		}
		all = append(all, own...)
	}
	return merged(all)
}

// merged returns the spans in order, with those that touch each other as one.
func merged(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var merged []span
	for _, s := range all {
		merged = appendMerged(merged, s)
	}
	return merged
}

// appendMerged appends a span, or extends the last one if the two touch each other.
func appendMerged(spans []span, s span) []span {
	if n := len(spans); n > 0 && s.from >= spans[n-1].from && s.from <= spans[n-1].to {
		spans[n-1].to = max(spans[n-1].to, s.to)
		return spans
	}
	return append(spans, s)
}

// lastBefore returns the last of the spans, which are in order, that does not
// begin after the time at.
func lastBefore(spans []span, at int64) (span, bool) {
	i, found := slices.BinarySearchFunc(spans, at, func(s span, at int64) int { return cmp.Compare(s.from, at) })
	if !found {
		i--
	}
	if i < 0 {
		return span{}, false
	}
	return spans[i], true
}

// covering returns the span that contains the time at, if any. The spans are in order.
func covering(spans []span, at int64) (span, bool) {
	s, ok := lastBefore(spans, at)
	return s, ok && at < s.to
}
