package cache

import (
	"fmt"
	"time"

	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// parts is the number of parts into which the share of BE is divided.
	parts = 8
	// settling is the minimum time between two cuts. When BE loses a cache way,
	// its data stays in the way until other work fills it.
	settling = 2 * time.Second
	// returnTime is the time without a missed objective after which BE gets one
	// part back.
	returnTime = 15 * time.Second
)

// BackOff reduces the cache and memory bandwidth of BE while an SLO is
// violated. Each cut takes half of the remaining parts. The parts come back one
// at a time.
//
// BackOff also acts for a service that hardly waits for BE, because too little
// cache makes a service slow by itself. The CPU back-off does not. Neither acts
// for a service that would meet its objective without its own quota. Requests count
// only if the service waits for BE, or if they need more CPU time (slo.Contention).
type BackOff struct {
	Cut int       `json:"cut,omitempty"` // number of parts taken from BE
	At  time.Time `json:"at,omitzero"`   // time of the last change or missed objective
	// Miss is the objective that is missed now. It is zero if no objective is
	// missed.
	Miss slo.Miss `json:"miss,omitzero"`
}

// Follow returns the back-off after the tick of s. While an objective is
// missed, it takes more parts from BE. Later it gives back one part at a time.
func (q BackOff) Follow(x slo.Tracker, s node.Snapshot) BackOff {
	if q.At.After(s.At) { // q.At is from before a reboot
		q.At = s.At
	}
	if worst := x.Contended(); len(worst) > 0 {
		switch missed := worst[0].At; {
		case q.Cut == 0, missed.After(q.At) && missed.Sub(q.At) >= settling:
			return BackOff{Cut: parts - (parts-q.Cut)/2, At: s.At, Miss: worst[0]}
		case q.Cut == parts:
			q.At = s.At // objective still missed, but nothing is left to cut
		}
		q.Miss = worst[0]
		return q
	}
	if q.Cut == 0 {
		return BackOff{}
	}
	q.Miss = slo.Miss{}
	if s.At.Sub(q.At) >= returnTime && !s.SLOViolated {
		q.Cut, q.At = q.Cut-1, s.At
	}
	if q.Cut == 0 {
		return BackOff{}
	}
	return q
}

// cutShare returns what remains of a share after the cuts.
func (q BackOff) cutShare(share unit.Percent) unit.Percent {
	return share * unit.Percent(parts-q.Cut) / parts
}

// explainCuts returns the part of a reason that says why BE has less than its
// share. The argument left is a text that says how much BE still has.
func (q BackOff) explainCuts(left string) string {
	if !q.Miss.Happened() {
		return fmt.Sprintf("; BE is to blame for no miss now, and grows back slowly, to %s now", left)
	}
	return fmt.Sprintf("; %s: BE gives way, down to %s", q.Miss.Text(), left)
}
