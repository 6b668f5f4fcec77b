package policy

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

const (
	// squeezeParts is in how many parts the share of best-effort work of caches
	// and bandwidth is cut.
	squeezeParts = 8
	// squeezeAgain is for how long a cut is given time to show: what is in a
	// way that was taken stays there until others need the room.
	squeezeAgain = 2 * time.Second
	// loosen is how long it takes until one part is given back.
	loosen = 15 * time.Second
)

// squeeze is how much less than its share of caches and memory bandwidth
// best-effort work has because an objective is missed: half of it goes with
// each cut, and it comes back part by part, slowly.
//
// Unlike what is given up of CPU time, it does not matter for whom the missing
// workload waited: work that is slow for lack of cache waits for itself.
type squeeze struct {
	Cut int       `json:"cut,omitempty"` // of squeezeParts
	At  time.Time `json:"at,omitzero"`   // of the last change, or miss
	// Reason is which objective is missed; empty: none any more.
	Reason string `json:"reason,omitempty"`
}

// follow cuts more, or gives back.
func (q squeeze) follow(x strain, s node.Snapshot) squeeze {
	if q.At.After(s.At) { // the clock of another boot
		q.At = s.At
	}
	if worst := x.missed(); len(worst) > 0 {
		switch missed := x.Work[worst[0].Workload].At; {
		case q.Cut == 0, missed.After(q.At) && missed.Sub(q.At) >= squeezeAgain:
			return squeeze{Cut: squeezeParts - (squeezeParts-q.Cut)/2, At: s.At, Reason: worst[0].Reason}
		case q.Cut == squeezeParts:
			q.At = s.At // no calm yet, and nothing left to cut
		}
		q.Reason = worst[0].Reason
		return q
	}
	if q.Cut == 0 {
		return squeeze{}
	}
	q.Reason = ""
	if s.At.Sub(q.At) >= loosen && !s.Hurt {
		q.Cut, q.At = q.Cut-1, s.At
	}
	if q.Cut == 0 {
		return squeeze{}
	}
	return q
}

// of is what is left of a share.
func (q squeeze) of(share unit.Percent) unit.Percent {
	return share * unit.Percent(squeezeParts-q.Cut) / squeezeParts
}

// because says why less is left than the share.
func (q squeeze) because(left string) string {
	if q.Reason == "" {
		return fmt.Sprintf("; no objective is missed any more: BE grows back slowly, to %s now", left)
	}
	return fmt.Sprintf("; %s: BE gives way, down to %s", q.Reason, left)
}
