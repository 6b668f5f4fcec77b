package host

import (
	"context"
	"errors"
	"fmt"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/bescheduler"
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
		err = h.release(s.Knob)
		switch {
		case err != nil:
		case s.Knob.Control != "":
			err = h.controls.Leave(s.Knob.Control)
		case s.Knob.File == node.FileIdentity:
			err = h.marks.LeaveSwitch()
		}
	} else {
		err = h.set(s.Knob, s.To.Rounded(h.kernel()))
		switch {
		case err == nil:
		case s.Knob.Control != "":
			err = errors.Join(err, h.controls.Leave(s.Knob.Control))
		case s.Knob.File == node.FileIdentity: // turned on for the mark that was refused
			err = errors.Join(err, h.marks.LeaveSwitch())
		}
	}
	if err != nil {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	return nil
}

func (h *Host) set(k node.Knob, to node.Value) error {
	if k.File.OrdersScheduler() {
		return h.isolation.Scheduler().Order(k, to)
	}
	if v, isRun := to.(node.Run); isRun && v.Ends() {
		return h.end(k, v)
	}
	if k.Control != "" {
		if err := h.controls.Make(k.Control); err != nil {
			return err
		}
	}
	inode, err := h.knobInode(k)
	if err != nil {
		return err
	}
	before, err := h.knobs.Read(k)
	if err != nil {
		return err
	}
	if err := h.journal.Intend(k, inode, h.before(before), to); err != nil {
		return err
	}
	writeErr := h.knobs.Write(k, to)
	now, err := h.knobs.Read(k)
	h.sight.saw(k, now, err)
	if errors.Is(writeErr, bescheduler.ErrLoading) {
		return writeErr // the entry stays pending with the new value
	}
	if writeErr == nil && err == nil {
		return h.journal.Wrote(k, now)
	}
	if err == nil && now == before { // refused without any change
		return errors.Join(writeErr, h.journal.Abandon(k))
	}
	// The knob is between the two values. Its entry stays pending, so that a
	// restore accepts any mix of them as Tenon's.
	return errors.Join(writeErr, err)
}

// before returns the value from before Tenon of a knob that reads as v.
func (h *Host) before(v node.Value) node.Value {
	if _, threads := v.(node.Threads); threads {
		// A thread that had it before had it from an earlier Tenon, or from its
		// parent.
		return node.ThreadsNormal
	}
	return h.controls.Before(v)
}

// knobInode identifies the cgroup or the control group of a knob. It fails with
// cgroup.ErrGone if there is none.
func (h *Host) knobInode(k node.Knob) (uint64, error) {
	if k.Control != "" {
		return h.controls.Inode(k.Control)
	}
	return h.tree.Inode(string(k.Cgroup))
}

func (h *Host) release(k node.Knob) error {
	s, err := h.journal.State()
	if err != nil {
		return err
	}
	t, touched := s.Touches[k]
	if !touched {
		return nil
	}
	t = h.attainable(k, t)
	inode, err := h.knobInode(k)
	if errors.Is(err, cgroup.ErrGone) || (err == nil && inode != t.Inode) {
		return errors.Join(h.isolation.LastReleased(k), h.journal.Forget(k)) // the cgroup and its knobs are gone
	}
	if err != nil {
		return err
	}
	now, err := h.knobs.Read(k)
	h.sight.saw(k, now, err)
	if dropped(err) {
		return h.journal.Forget(k)
	}
	if err != nil {
		return err
	}
	if k == bescheduler.Knob {
		h.isolation.Scheduler().Unwant()
	}
	if now != t.Before && h.ours(k, t, now) {
		if err := h.journal.Intend(k, inode, t.Before, t.Before); err != nil {
			return err
		}
		err := h.knobs.Write(k, t.Before)
		if next := h.nextTo(k, t.Before, err); next != nil {
			t.Before = next
			if err = h.journal.Intend(k, inode, t.Before, t.Before); err == nil {
				err = h.knobs.Write(k, t.Before)
			}
		}
		if err != nil {
			return err
		}
		now, err = h.knobs.Read(k)
		if h.sight.saw(k, now, err); err != nil {
			return err
		}
		if now != t.Before {
			return fmt.Errorf("%v was %v before and now reads %v", k, t.Before, now)
		}
	}
	if err := h.isolation.LastReleased(k); err != nil {
		return err
	}
	return h.journal.Forget(k)
}
