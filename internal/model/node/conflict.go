package node

import "time"

// A WriteConflict is a knob that another component writes, too. Wrote is Tenon's
// last write; Found says after which writes another value was found, oldest first.
type WriteConflict struct {
	Knob  Knob        `json:"knob"`
	Wrote time.Time   `json:"wrote"`
	Found []time.Time `json:"found"`
}
