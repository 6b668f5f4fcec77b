package node

import "time"

// A WriteConflict is a knob that another component also writes. Wrote is the
// time of Tenon's last write. Found lists the times of the writes after which
// the knob had another value, oldest first.
type WriteConflict struct {
	Knob  Knob        `json:"knob"`
	Wrote time.Time   `json:"wrote"`
	Found []time.Time `json:"found"`
}
