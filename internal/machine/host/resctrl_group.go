package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/resctrl"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// makeControl makes a control group that is missing, journaled as Tenon's
// before it is made. One that somebody else uses is refused.
func (h *Host) makeControl(group string) error {
	if group == node.DefaultControl {
		return fmt.Errorf("the default control group is everybody's: it stays as it is")
	}
	fs, err := h.mounted()
	if err != nil {
		return err
	}
	inode, err := fs.Inode(group)
	if err == nil {
		state, err := h.journal.State()
		if err != nil {
			return err
		}
		taken, err := controlTaken(fs, state, group, inode)
		if err == nil && taken {
			err = fmt.Errorf("control group %s was made by somebody else, who uses it", group)
		}
		return err
	}
	if !errors.Is(err, resctrl.ErrGone) {
		return err
	}
	if err := h.journal.MadeControl(group, 0); err != nil {
		return err
	}
	if err := fs.Make(group); err != nil {
		return errors.Join(err, h.journal.RemovedControl(group))
	}
	if inode, err = fs.Inode(group); err != nil {
		return err
	}
	return h.journal.MadeControl(group, inode)
}

// controlTaken reports whether a group that exists is somebody else's: Tenon
// neither made nor touched it, and it holds tasks or something for itself
// alone. What is empty and shared may be adopted.
func controlTaken(fs *resctrl.FS, state journal.State, group string, inode uint64) (bool, error) {
	if c, made := state.Controls[group]; made && (c.Inode == inode || c.Inode == 0) {
		return false, nil
	}
	for k, t := range state.Touches {
		if k.Control == group && t.Inode == inode {
			return false, nil
		}
	}
	shared, err := fs.Shared(group)
	if err != nil || !shared {
		return true, err
	}
	tasks, err := fs.Tasks(group)
	return len(tasks) > 0, err
}

// leaveControl removes a control group that Tenon made and that none of its
// knobs needs any more.
func (h *Host) leaveControl(group string) error {
	state, err := h.journal.State()
	if err != nil {
		return err
	}
	for k := range state.Touches {
		if k.Control == group {
			return nil
		}
	}
	return h.removeControl(state, group)
}

func (h *Host) removeControl(state journal.State, group string) error {
	c, made := state.Controls[group]
	if !made {
		return nil
	}
	fs, err := h.mounted()
	switch {
	case errors.Is(err, resctrl.ErrNotMounted): // all groups are gone with it
		return h.journal.RemovedControl(group)
	case err != nil:
		return err
	}
	inode, err := fs.Inode(group)
	if err != nil && !errors.Is(err, resctrl.ErrGone) {
		return err
	}
	if err == nil && (c.Inode == inode || c.Inode == 0) {
		if err := fs.Remove(group); err != nil {
			return err
		}
	}
	return h.journal.RemovedControl(group)
}

// knobInode names the group that a knob is of: a cgroup's, or a control
// group's. It fails with cgroup.ErrGone if there is none.
func (h *Host) knobInode(k node.Knob) (uint64, error) {
	if k.Control == "" {
		return h.tree.Inode(string(k.Cgroup))
	}
	fs, err := h.mounted()
	if err == nil {
		var inode uint64
		if inode, err = fs.Inode(k.Control); err == nil {
			return inode, nil
		}
	}
	if errors.Is(err, resctrl.ErrGone) || errors.Is(err, resctrl.ErrNotMounted) {
		err = fmt.Errorf("%w: %w", cgroup.ErrGone, err)
	}
	return 0, err
}

// removeControls removes the control groups in scope. Their tasks go to the
// default group.
func (h *Host) removeControls(state journal.State, in scope, r *Report) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(state.Controls)) {
		if !in(state.Controls[name].By) {
			continue
		}
		if err := h.removeControl(state, name); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Controls = append(r.Controls, name)
	}
	return errors.Join(errs...)
}
