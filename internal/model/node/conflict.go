package node

import "time"

// A WriteConflict describes a knob that another component also writes. Wrote is
// the time of Tenon's last write. Found lists, oldest first, the times at which
// the knob had another value than the one that Tenon had written.
type WriteConflict struct {
	Knob  Knob        `json:"knob"`
	Wrote time.Time   `json:"wrote"`
	Found []time.Time `json:"found"`
}
