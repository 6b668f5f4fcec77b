package change

import (
	"errors"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
)

// alternative returns the value to try after the kernel refused v with err, or
// nil if there is none.
//
// On cgroup v2 an empty cpuset means the set of the parent. But while a cgroup
// has tasks, its set cannot become empty again. The alternative is to write the
// set of the parent explicitly, which has the same effect.
//
// The same holds for a cgroup of v1 that had no set when Tenon first wrote it,
// because its maker had not filled it, and that has tasks now.
//
// On cgroup v1 a cpuset may contain only what is online (EINVAL) and what its
// parent has (EACCES). The kernel removes an offline CPU or memory node from
// every cpuset, and later gives it back to the root only. The alternative is
// what is left of v. If the journal has the parent, EACCES means that the parent
// must be released first, and there is no alternative.
func (c *Knobs) alternative(k node.Knob, v node.Value, err error) node.Value {
	set, isSet := v.(node.CPUs)
	if !isSet || err == nil {
		return nil
	}
	version, parent := c.o.Tree.VersionOf("cpuset"), node.Knob{Cgroup: k.Cgroup.Parent(), File: k.File}
	switch {
	case version == 2 && set.Set.Empty() && errors.Is(err, syscall.ENOSPC):
		read := c.o.Tree.EffectiveCPUs
		if k.File == node.FileMems {
			read = c.o.Tree.EffectiveMems
		}
		if set.Set, err = read(string(parent.Cgroup)); err == nil && !set.Set.Empty() {
			return set
		}
	case version == 1 && set.Set.Empty() && errors.Is(err, syscall.ENOSPC) && !hasEntry(c, parent):
		if has, err := c.table.Read(parent); err == nil && has != v {
			return has
		}
	case version == 1 && errors.Is(err, syscall.EINVAL):
		return within(c, set, node.Knob{File: k.File}) // the root has all that is online
	case version == 1 && errors.Is(err, syscall.EACCES) && !hasEntry(c, parent):
		return within(c, set, parent)
	}
	return nil
}

// within returns the part of a set that the present set of another knob
// contains. It returns nil if this part is empty, is the whole set, or is
// unknown.
func within(c *Knobs, set node.CPUs, outer node.Knob) node.Value {
	v, err := c.table.Read(outer)
	has, isSet := v.(node.CPUs)
	if err != nil || !isSet {
		return nil
	}
	part := node.CPUs{Set: set.Set.Intersect(has.Set)}
	if part == set || part.Set.Empty() {
		return nil
	}
	return part
}

// hasEntry reports whether the journal has an entry of a knob, and not of a
// removed cgroup with the same name.
func hasEntry(c *Knobs, k node.Knob) bool {
	t, touched := c.touch(k)
	if !touched {
		return false
	}
	inode, err := c.Inode(k)
	return err != nil || inode == t.Inode
}
