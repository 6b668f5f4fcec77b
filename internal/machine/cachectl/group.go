package cachectl

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

// Make creates a control group if it does not exist. Before that, it adds the group
// to the journal. If another component uses the group, it returns an error.
func (c *Groups) Make(group string) error {
	if group == node.DefaultControlGroup {
		return fmt.Errorf("the default control group is everybody's: it stays as it is")
	}
	fs, err := c.Mounted()
	if err != nil {
		return err
	}
	inode, err := fs.Inode(group)
	if err == nil {
		state, err := c.journal.State()
		if err != nil {
			return err
		}
		used, err := isTaken(fs, state, group, inode)
		if err == nil && used {
			err = fmt.Errorf("control group %s was made by another component, which uses it", group)
		}
		return err
	}
	if !errors.Is(err, resctrl.ErrGone) {
		return err
	}
	if err := c.journal.MadeControl(group, 0); err != nil {
		return err
	}
	if err := fs.Make(group); err != nil {
		return errors.Join(err, c.journal.RemovedControl(group))
	}
	if inode, err = fs.Inode(group); err != nil {
		return err
	}
	return c.journal.MadeControl(group, inode)
}

// isTaken reports whether an existing group belongs to another component: Tenon
// neither made nor changed it, and it has tasks or exclusive resources. Tenon
// may use a group that has neither.
func isTaken(fs *resctrl.FS, state journal.State, group string, inode uint64) (bool, error) {
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

// Leave removes a control group that Tenon made, if no knob of Tenon needs it
// any more.
func (c *Groups) Leave(group string) error {
	state, err := c.journal.State()
	if err != nil {
		return err
	}
	for k := range state.Touches {
		if k.ControlGroup == group {
			return nil
		}
	}
	return c.remove(state, group)
}

func (c *Groups) remove(state journal.State, group string) error {
	known, made := state.Controls[group]
	if !made {
		return nil
	}
	fs, err := c.Mounted()
	switch {
	case errors.Is(err, resctrl.ErrNotMounted): // the groups are gone with the mount
		return c.journal.RemovedControl(group)
	case err != nil:
		return err
	}
	inode, err := fs.Inode(group)
	if err != nil && !errors.Is(err, resctrl.ErrGone) {
		return err
	}
	if err == nil && (known.Inode == inode || known.Inode == 0) {
		if err := fs.Remove(group); err != nil {
			return err
		}
	}
	return c.journal.RemovedControl(group)
}

// Inode returns the inode number of a control group. It returns cgroup.ErrGone
// if the group does not exist.
func (c *Groups) Inode(group string) (uint64, error) {
	fs, err := c.Mounted()
	if err == nil {
		var inode uint64
		if inode, err = fs.Inode(group); err == nil {
			return inode, nil
		}
	}
	if errors.Is(err, resctrl.ErrGone) || errors.Is(err, resctrl.ErrNotMounted) {
		err = fmt.Errorf("%w: %w", cgroup.ErrGone, err)
	}
	return 0, err
}

// RemoveMade removes control groups that Tenon made, and returns their names.
// It calls match with the process that made a group, and removes the group if
// match returns true. The kernel moves the tasks to the default group.
func (c *Groups) RemoveMade(state journal.State, match func(journal.Session) bool) (removed []string, err error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(state.Controls)) {
		if !match(state.Controls[name].By) {
			continue
		}
		if err := c.remove(state, name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, name)
	}
	return removed, errors.Join(errs...)
}
