package host

import (
	"errors"

	"tenon.sh/tenon/internal/model/node"
)

// Rebase changes the values that a release restores. change gets the value from
// before Tenon's first write; it returns the value that the owner of the knob
// would have written by now, or nil for no change. It is for knobs that another
// component derives from a user's settings, as the kubelet does for pods.
// Rebase writes only the journal.
func (h *Host) Rebase(change func(k node.Knob, before node.Value) node.Value) error {
	touches, err := h.ownTouches()
	if err != nil {
		return err
	}
	var errs []error
	for k, t := range touches {
		if next := change(k, t.Before); next != nil && next != t.Before {
			errs = append(errs, h.journal.Rebase(k, next))
		}
	}
	return errors.Join(errs...)
}
