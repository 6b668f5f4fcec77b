package change

import (
	"errors"
	"slices"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// On cgroup v1 a new cgroup gets a copy of its parent's CPUs and memory nodes.
// The copy is made by the kernel (cgroup.clone_children), or by the program
// that makes the cgroup: the kubelet, a container runtime, systemd. If Tenon
// has narrowed the parent, the new cgroup gets the narrowed value, which its
// owner did not choose. A release must then give the new cgroup the value that
// its parent had before Tenon.

// formerSets is the number of earlier values of a cpuset that Tenon remembers
// in order to recognize copies of them. If a cgroup is made while Tenon changes
// its parent, it has a copy of the value that the parent had before this
// change.
const formerSets = 4

// copies reports whether a new cgroup gets a copy of the value that its parent
// has for this knob.
func (c *Knobs) copies(k node.Knob) bool {
	return (k.File == node.FileCPUs || k.File == node.FileMems) && k.ControlGroup == "" && c.o.Tree != nil && c.o.Tree.VersionOf("cpuset") == 1
}

// recordOverwrite records an earlier value of Tenon in a cpuset, which Tenon
// now replaces.
func (c *Knobs) recordOverwrite(k node.Knob, v node.Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.former[k], v) {
		return
	}
	if c.former == nil {
		c.former = map[node.Knob][]node.Value{}
	}
	all := append(slices.Clone(c.former[k]), v)
	c.former[k] = all[max(0, len(all)-formerSets):]
}

// forgetFormer forgets the earlier values of a knob that Tenon does not manage
// any more.
func (c *Knobs) forgetFormer(k node.Knob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.former, k)
}

// hasWritten reports whether Tenon wrote this value to a knob, now or earlier.
func (c *Knobs) hasWritten(k node.Knob, t journal.Touch, v node.Value) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return v == t.Written || v == t.Pending || slices.Contains(c.former[k], v)
}

// InheritedEntry reports whether a knob that is not in the journal has a copy
// of a value that Tenon wrote to an ancestor. If so, it returns the entry that
// the knob would have if Tenon had written the copy itself. In this entry, the
// value before Tenon is that of the ancestor, and the copy is also pending,
// because the journal does not know it. The function touch returns the
// journal's entry of a knob.
//
// An owner may also give a cgroup the same value that Tenon wrote to the
// parent. InheritedEntry takes this value for a copy. But if the cgroup already
// had the value before Tenon narrowed the parent, adoptChildren has added an
// entry for the cgroup.
func (c *Knobs) InheritedEntry(k node.Knob, now node.Value, touch func(node.Knob) (journal.Touch, bool)) (journal.Touch, bool) {
	if !c.copies(k) {
		return journal.Touch{}, false
	}
	for p := k.Cgroup.Parent(); p != ""; p = p.Parent() {
		above := node.Knob{Cgroup: p, File: k.File}
		t, touched := touch(above)
		if touched {
			if inode, err := c.Inode(above); err != nil || inode != t.Inode {
				return journal.Touch{}, false
			}
			before, isSet := t.Before.(node.CPUs)
			copied, _ := now.(node.CPUs)
			if !isSet || copied.Set.Empty() || before == copied || !before.Set.Contains(copied.Set) || !c.hasWritten(above, t, now) {
				return journal.Touch{}, false
			}
			inode, err := c.Inode(k)
			return journal.Touch{Inode: inode, Before: before, Written: now, Pending: now, By: t.By}, err == nil
		}
		if v, err := c.table.Read(above); err != nil || v != now {
			return journal.Touch{}, false
		}
	}
	return journal.Touch{}, false
}

// original returns the value that a knob had before Tenon. It is for knobs that
// Tenon now writes for the first time. now is the present value.
func (c *Knobs) original(k node.Knob, now node.Value) node.Value {
	if t, copied := c.InheritedEntry(k, now, c.touch); copied {
		return t.Before
	}
	return now
}

// touch returns the journal's entry of a knob. If the journal cannot be read,
// it returns none, and the next write fails for the same reason.
func (c *Knobs) touch(k node.Knob) (journal.Touch, bool) {
	t, touched, err := c.o.Journal.Touch(k)
	return t, touched && err == nil
}

// adoptChildren adds journal entries for those children of a cgroup that
// already have the value that Tenon is about to write to the cgroup. The owners
// of these children chose the value. Without an entry, the value would look like
// a copy of Tenon's.
func (c *Knobs) adoptChildren(k node.Knob, to node.Value) error {
	children, err := c.o.Tree.Children(string(k.Cgroup))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range children {
		child := node.Knob{Cgroup: k.Cgroup.Join(name), File: k.File}
		inode, err := c.Inode(child)
		if t, touched := c.touch(child); err != nil || touched && t.Inode == inode {
			continue
		}
		if now, err := c.table.Read(child); err == nil && now == to {
			errs = append(errs, c.enter(child, inode, now, now))
		}
	}
	return errors.Join(errs...)
}

// enter adds an entry for a value that Tenon did not write itself.
func (c *Knobs) enter(k node.Knob, inode uint64, before, now node.Value) error {
	if err := c.o.Journal.Intend(k, inode, before, now); err != nil {
		return err
	}
	c.writeNote(k, before, now)
	return c.o.Journal.RecordValue(k, now)
}

// AdoptBorn adds journal entries for cpusets of new cgroups that have copies of
// Tenon's values. So a release of the ancestor also restores them. groups are
// all cgroups, parents before their children. If the cpuset of a new cgroup is
// still empty, AdoptBorn returns true, and the caller should soon call it again.
// AdoptBorn writes no knob.
func (c *Knobs) AdoptBorn(groups []string) (again bool, err error) {
	if c.o.Tree == nil || c.o.Tree.VersionOf("cpuset") != 1 {
		return false, nil
	}
	var files []node.File
	for _, f := range []node.File{node.FileCPUs, node.FileMems} {
		some, err := c.o.Journal.Touches(f)
		if err != nil {
			return false, err
		}
		if some {
			files = append(files, f)
		}
	}
	examined := make(map[string]bool, len(groups))
	var errs []error
	for _, g := range groups {
		examined[g] = true
		if c.examined[g] {
			continue
		}
		for _, f := range files {
			empty, err := c.adopt(node.Knob{Cgroup: node.CgroupPath(g), File: f})
			if errs = append(errs, err); empty {
				examined[g], again = false, true
			}
		}
	}
	c.examined = examined
	return again, errors.Join(errs...)
}

// adopt adds a journal entry for one knob if its value is a copy of a value that
// Tenon wrote to an ancestor. empty says that the cpuset is still empty.
func (c *Knobs) adopt(k node.Knob) (empty bool, err error) {
	if !c.hasTouchedAncestor(k) {
		return false, nil
	}
	now, err := c.table.Read(k)
	if IsDropped(err) || errors.Is(err, cgroup.ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if set, _ := now.(node.CPUs); set.Set.Empty() {
		return true, nil
	}
	t, copied := c.InheritedEntry(k, now, c.touch)
	if !copied {
		return false, nil
	}
	return false, c.enter(k, t.Inode, t.Before, now)
}

// hasTouchedAncestor reports whether the journal has this kind of knob for a
// cgroup above, but not for the knob's own cgroup.
func (c *Knobs) hasTouchedAncestor(k node.Knob) bool {
	if t, touched := c.touch(k); touched {
		inode, err := c.Inode(k)
		return err == nil && inode != t.Inode
	}
	for p := k.Cgroup.Parent(); p != ""; p = p.Parent() {
		if _, touched := c.touch(node.Knob{Cgroup: p, File: k.File}); touched {
			return true
		}
	}
	return false
}

// Copies returns entries for cpusets below the knobs in touches that have
// copies of Tenon's values, but are not in the journal. A restore needs these
// entries. With a partial.Error, it has those of all cgroups that it could list.
func (c *Knobs) Copies(touches map[node.Knob]journal.Touch) (map[node.Knob]journal.Touch, error) {
	all, missed := map[node.Knob]journal.Touch{}, &partial.Error{}
	touch := func(k node.Knob) (journal.Touch, bool) {
		t, touched := touches[k]
		if !touched {
			t, touched = all[k]
		}
		return t, touched
	}
	var below func(p node.CgroupPath, f node.File)
	below = func(p node.CgroupPath, f node.File) {
		children, err := c.o.Tree.Children(string(p))
		if err != nil && !errors.Is(err, cgroup.ErrGone) {
			missed.Add(string(p), err)
		}
		for _, name := range children {
			k := node.Knob{Cgroup: p.Join(name), File: f}
			if _, touched := touches[k]; touched {
				continue
			}
			now, err := c.table.Read(k)
			if err != nil {
				continue
			}
			if t, copied := c.InheritedEntry(k, now, touch); copied {
				all[k] = t
				below(k.Cgroup, f)
			}
		}
	}
	for k := range touches {
		if c.copies(k) {
			below(k.Cgroup, k.File)
		}
	}
	return all, missed.OrNil()
}
