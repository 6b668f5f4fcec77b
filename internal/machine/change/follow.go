package change

import (
	"errors"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// Renamed returns those cgroups of journaled knobs that another program has
// renamed. Only cgroup v1 allows this, and the cgroup keeps its inode. The
// function paths returns all cgroups. It is called only if a cgroup is missing
// at the path that the journal has. If paths returns a partial.Error, Renamed
// returns it with the renames that it has found.
func (c *Knobs) Renamed(touches map[node.Knob]journal.Touch, paths func() ([]string, error)) ([]journal.Move, error) {
	return c.renamed(touches, paths, map[node.CgroupPath]uint64{})
}

// renamed does the same as Renamed. It adds to inodes the inode of each cgroup
// that has knobs in touches, and 0 if the cgroup does not exist.
func (c *Knobs) renamed(touches map[node.Knob]journal.Touch, paths func() ([]string, error), inodes map[node.CgroupPath]uint64) ([]journal.Move, error) {
	if c.o.Tree == nil || c.o.Tree.Version() != 1 {
		return nil, nil
	}
	was := map[uint64]node.CgroupPath{}
	for k, t := range touches {
		if k.ControlGroup != "" {
			continue
		}
		inode, known := inodes[k.Cgroup]
		if !known {
			var err error
			if inode, err = c.o.Tree.Inode(string(k.Cgroup)); err != nil && !errors.Is(err, cgroup.ErrGone) {
				return nil, err
			}
			inodes[k.Cgroup] = inode
		}
		if inode != t.Inode {
			was[t.Inode] = k.Cgroup
		}
	}
	if len(was) == 0 {
		return nil, nil
	}
	all, missed := paths()
	if missed != nil && !partial.Is(missed) {
		return nil, missed
	}
	var moves []journal.Move
	for _, p := range all {
		inode, known := inodes[node.CgroupPath(p)]
		if !known {
			inode, _ = c.o.Tree.Inode(p) //nolint:errcheck // 0: the cgroup is gone
		}
		if from, moved := was[inode]; moved && inode != 0 {
			moves = append(moves, journal.Move{From: from, To: node.CgroupPath(p), Inode: inode})
		}
	}
	return moves, missed
}

// MayBeHidden reports whether a cgroup that is not found may have been renamed:
// only v1 allows this, and only below the same parent, which cannot be listed.
func MayBeHidden(c *Knobs, p node.CgroupPath) bool {
	if c.o.Tree == nil || c.o.Tree.Version() != 1 {
		return false
	}
	_, err := c.o.Tree.Children(string(p.Parent()))
	return err != nil && !errors.Is(err, cgroup.ErrGone)
}

// Follow records in the journal that cgroups were renamed, and changes the
// paths in touches. So a later release restores the knobs of the right cgroups.
// If paths returns a partial.Error, Follow returns it after it has recorded the
// other renames.
func (c *Knobs) Follow(touches map[node.Knob]journal.Touch, paths func() ([]string, error)) error {
	moves, missed := c.Renamed(touches, paths)
	if len(moves) == 0 {
		return missed
	}
	if err := c.o.Journal.Moved(moves); err != nil {
		return err
	}
	(&journal.State{Touches: touches, Groups: map[node.CgroupPath]journal.Session{}}).Move(moves)
	return missed
}

// handleDisplaced handles a knob whose journal entry belongs to another cgroup,
// with another inode. The cgroup of the entry may have been renamed, and its
// entry must not be overwritten or forgotten. So handleDisplaced first journals
// renames. It returns the entry that the knob has then.
func (c *Knobs) handleDisplaced(k node.Knob) (journal.Touch, bool, error) {
	state, err := c.o.Journal.State()
	if err == nil {
		err = c.Follow(state.Touches, c.o.Tree.Paths)
	}
	if partial.Is(err) && !MayBeHidden(c, k.Cgroup) {
		err = nil // the cgroup of the entry would have been found
	}
	t, touched := state.Touches[k]
	return t, touched, err
}

// FollowAndList journals renames of cgroups, and then returns the result of
// ReleasableKnobs. groups are all cgroups. inodes holds the inodes that it has
// read, so that the caller need not read them again. The inode of a missing
// cgroup is 0.
func (c *Knobs) FollowAndList(groups []string) (touches map[node.Knob]journal.Touch, inodes map[node.CgroupPath]uint64, err error) {
	touches, err = c.ReleasableKnobs()
	if err != nil {
		return nil, nil, err
	}
	inodes = map[node.CgroupPath]uint64{}
	moves, err := c.renamed(touches, func() ([]string, error) { return groups, nil }, inodes)
	if err != nil || len(moves) == 0 {
		return touches, inodes, err
	}
	if err := c.o.Journal.Moved(moves); err != nil {
		return nil, nil, err
	}
	touches, err = c.ReleasableKnobs()
	return touches, nil, err
}
