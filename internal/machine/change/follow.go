package change

import (
	"errors"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// Renamed returns the cgroups of journaled knobs that another program has
// renamed, which the kernel allows on cgroup v1 only. A renamed cgroup keeps
// its inode. paths returns all cgroups; Renamed calls it only if a cgroup is
// not where the journal has it.
func (c *Knobs) Renamed(touches map[node.Knob]journal.Touch, paths func() ([]string, error)) ([]journal.Move, error) {
	if c.o.Tree == nil || c.o.Tree.Version() != 1 {
		return nil, nil
	}
	was := map[uint64]node.CgroupPath{}
	is := map[node.CgroupPath]uint64{}
	for k, t := range touches {
		if k.ControlGroup != "" {
			continue
		}
		inode, known := is[k.Cgroup]
		if !known {
			var err error
			if inode, err = c.o.Tree.Inode(string(k.Cgroup)); err != nil && !errors.Is(err, cgroup.ErrGone) {
				return nil, err
			}
			is[k.Cgroup] = inode
		}
		if inode != t.Inode {
			was[t.Inode] = k.Cgroup
		}
	}
	if len(was) == 0 {
		return nil, nil
	}
	all, err := paths()
	if err != nil {
		return nil, err
	}
	var moves []journal.Move
	for _, p := range all {
		inode, err := c.o.Tree.Inode(p)
		if from, moved := was[inode]; moved && err == nil {
			moves = append(moves, journal.Move{From: from, To: node.CgroupPath(p), Inode: inode})
		}
	}
	return moves, nil
}

// Follow journals that cgroups were renamed, so that Tenon's values are given
// back to the cgroups that have them, and changes touches in the same way.
func (c *Knobs) Follow(touches map[node.Knob]journal.Touch, paths func() ([]string, error)) error {
	moves, err := c.Renamed(touches, paths)
	if err != nil || len(moves) == 0 {
		return err
	}
	if err := c.o.Journal.Moved(moves); err != nil {
		return err
	}
	(&journal.State{Touches: touches, Groups: map[node.CgroupPath]journal.Session{}}).Move(moves)
	return nil
}

// displaced is called when a knob's cgroup is not the one of its entry. It
// journals renames first, because the entry would be overwritten or forgotten
// otherwise, and returns the knob's entry afterwards.
func (c *Knobs) displaced(k node.Knob) (journal.Touch, bool, error) {
	state, err := c.o.Journal.State()
	if err == nil {
		err = c.Follow(state.Touches, c.o.Tree.Paths)
	}
	t, touched := state.Touches[k]
	return t, touched, err
}

// OwnFollowed is Own after renamed cgroups were followed. groups are all cgroups.
func (c *Knobs) OwnFollowed(groups []string) (map[node.Knob]journal.Touch, error) {
	touches, err := c.Own()
	if err != nil {
		return nil, err
	}
	all := func() ([]string, error) { return groups, nil }
	moves, err := c.Renamed(touches, all)
	if err != nil || len(moves) == 0 {
		return touches, err
	}
	if err := c.o.Journal.Moved(moves); err != nil {
		return nil, err
	}
	return c.Own()
}
