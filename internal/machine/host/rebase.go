package host

import (
	"errors"

	"tenon.sh/tenon/internal/model/node"
)

// Rebase changes what a release of knobs gives back: change gets the value from
// before Tenon's first touch and returns what their owner would have written by
// now, or the same value, or nil for the same. It is for knobs that somebody
// else keeps according to what a user may change meanwhile, as the kubelet keeps
// those of pods. Only the journal is written.
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
