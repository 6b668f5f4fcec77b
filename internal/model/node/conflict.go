package node

import "time"

// A WriteConflict is a knob that another component also writes. Wrote is the
// time of Tenon's last write. Found lists the times at which the knob turned
// out to have another value, oldest first.
type WriteConflict struct {
	Knob  Knob        `json:"knob"`
	Wrote time.Time   `json:"wrote"`
	Found []time.Time `json:"found"`
}
