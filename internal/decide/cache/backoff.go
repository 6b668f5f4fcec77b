package cache

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// parts is in how many parts the share of BE of caches and bandwidth is cut.
	parts = 8
	// settling is the time after a cut before the next: lines in a cache way that
	// was taken from BE stay there until other work needs the room.
	settling = 2 * time.Second
	// loosen is the time after which one part is given back.
	loosen = 15 * time.Second
)

// BackOff is how much less than its share of caches and memory bandwidth BE has,
// because an SLO is violated: each cut takes half of what is left, and the parts come
// back one by one, slowly.
//
// Unlike for the back-off of CPU time, it does not matter for which work the service
// waited: a service that is slow for lack of cache waits for itself.
type BackOff struct {
	Cut int       `json:"cut,omitempty"` // of squeezeParts
	At  time.Time `json:"at,omitzero"`   // of the last change, or miss
	// Reason is which objective is missed; empty: none any more.
	Reason string `json:"reason,omitempty"`
}

// Follow cuts more, or gives back.
func (q BackOff) Follow(x slo.Tracker, s node.Snapshot) BackOff {
	if q.At.After(s.At) { // the clock of another boot
		q.At = s.At
	}
	if worst := x.Missed(); len(worst) > 0 {
		switch missed := x.Work[worst[0].Workload].At; {
		case q.Cut == 0, missed.After(q.At) && missed.Sub(q.At) >= settling:
			return BackOff{Cut: parts - (parts-q.Cut)/2, At: s.At, Reason: worst[0].Reason}
		case q.Cut == parts:
			q.At = s.At // no calm yet, and nothing left to cut
		}
		q.Reason = worst[0].Reason
		return q
	}
	if q.Cut == 0 {
		return BackOff{}
	}
	q.Reason = ""
	if s.At.Sub(q.At) >= loosen && !s.SLOViolated {
		q.Cut, q.At = q.Cut-1, s.At
	}
	if q.Cut == 0 {
		return BackOff{}
	}
	return q
}

// of is the rest of a share.
func (q BackOff) of(share unit.Percent) unit.Percent {
	return share * unit.Percent(parts-q.Cut) / parts
}

// because says, in a reason, why less than the share is left.
func (q BackOff) because(left string) string {
	if q.Reason == "" {
		return fmt.Sprintf("; no objective is missed any more: BE grows back slowly, to %s now", left)
	}
	return fmt.Sprintf("; %s: BE gives way, down to %s", q.Reason, left)
}
