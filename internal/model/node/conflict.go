package node

import "time"

// A WriteConflict describes a knob that another component also writes. Wrote is
// the time of Tenon's last write. Found and Resets list, oldest first, the times at
// which the knob had another value than the one that Tenon had written. Resets has
// those at which systemd may have written the settings of a unit: each part of the knob
// that Tenon had changed had its value from before Tenon.
type WriteConflict struct {
	Knob   Knob        `json:"knob"`
	Wrote  time.Time   `json:"wrote"`
	Found  []time.Time `json:"found,omitempty"`
	Resets []time.Time `json:"resets,omitempty"`
}
