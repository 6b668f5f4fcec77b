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

// makeControl makes a missing control group, and journals it first. It refuses
// a group that another component uses.
func (h *Host) makeControl(group string) error {
	if group == node.DefaultControlGroup {
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
			err = fmt.Errorf("control group %s was made by another component, which uses it", group)
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

// controlTaken reports whether an existing group belongs to another component:
// Tenon neither made nor changed it, and it has tasks or exclusive resources.
// Tenon may adopt an empty, shared group.
func controlTaken(fs *resctrl.FS, state journal.State, group string, inode uint64) (bool, error) {
	if c, made := state.Controls[group]; made && (c.Inode == inode || c.Inode == 0) {
		return false, nil
	}
	for k, t := range state.Touches {
		if k.ControlGroup == group && t.Inode == inode {
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

// leaveControl removes a control group that Tenon made and that no knob of
// Tenon needs any more.
func (h *Host) leaveControl(group string) error {
	state, err := h.journal.State()
	if err != nil {
		return err
	}
	for k := range state.Touches {
		if k.ControlGroup == group {
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
	case errors.Is(err, resctrl.ErrNotMounted): // the groups are gone with the mount
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

// knobInode returns the inode of a knob's cgroup or control group. It fails
// with cgroup.ErrGone if there is none.
func (h *Host) knobInode(k node.Knob) (uint64, error) {
	if k.ControlGroup == "" {
		return h.tree.Inode(string(k.Cgroup))
	}
	fs, err := h.mounted()
	if err == nil {
		var inode uint64
		if inode, err = fs.Inode(k.ControlGroup); err == nil {
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
