package host

import (
	"context"
	"errors"
	"fmt"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/model/node"
)

// Apply performs one step. It journals the value from before and the new value
// before the write, and afterwards the value that the kernel shows. A release
// restores the value from before, unless another component has changed the knob
// since, and then forgets the knob. A step on a cgroup that is gone fails with
// cgroup.ErrGone.
func (h *Host) Apply(ctx context.Context, s plan.Step) error {
	if err := errors.Join(ctx.Err(), h.needTree()); err != nil {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	if s.To == nil {
		return fmt.Errorf("apply to %v: the step has no value", s.Knob)
	}
	var err error
	if cachectl.Has(s.Knob) {
		defer h.controls.Written(s.Knob)
	}
	if s.Release {
		err = h.changes.Release(s.Knob)
		switch {
		case err != nil:
		case s.Knob.ControlGroup != "":
			err = h.controls.Leave(s.Knob.ControlGroup)
		case s.Knob.File == node.FileIdentity:
			err = h.marks.LeaveSwitch()
		}
	} else {
		err = h.set(s.Knob, s.To.Rounded(h.Kernel()))
		switch {
		case err == nil:
		case s.Knob.ControlGroup != "":
			err = errors.Join(err, h.controls.Leave(s.Knob.ControlGroup))
		case s.Knob.File == node.FileIdentity: // turned on for the mark that was refused
			err = errors.Join(err, h.marks.LeaveSwitch())
		}
	}
	if err != nil {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	return nil
}

// set performs what a step wants of a knob.
func (h *Host) set(k node.Knob, to node.Value) error {
	if k.File.OrdersScheduler() {
		return h.isolation.Scheduler().Order(k, to)
	}
	if v, isRun := to.(node.Run); isRun && v.EndsProcesses() {
		return h.runs.end(k, v)
	}
	if k.ControlGroup != "" {
		if err := h.controls.Make(k.ControlGroup); err != nil {
			return err
		}
	}
	return h.changes.Set(k, to)
}
