package change

import (
	"cmp"
	"errors"
	iofs "io/fs"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/resctrl"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// The values of a knob decide what a release gives to it. Before is its value
// from before Tenon's first write. Written is the last value that Tenon wrote,
// and Pending the value of a write whose result the journal does not know. Each
// part of the knob (package knob) is judged by itself:
//
//   - A part that is now as in Written or Pending is Tenon's. A release gives it
//     its value from before.
//   - Any other part was written by another component, or has its value from
//     before. A release leaves it as it is.
//
// Two rules keep these values true when Tenon writes the knob again (prepare).
// If another component has written a part in which Written is Before, so that
// Tenon has not changed it, the new value is the one from before. And before
// another value becomes Pending, what the last write left becomes Written.

// ToRestore returns the value that a release gives to a knob, where t is its
// journal entry and now its present value. If this is now, a release writes
// nothing.
func (c *Knobs) ToRestore(k node.Knob, t journal.Touch, now node.Value) node.Value {
	if isOurs(c, k, t, now) {
		return t.Before
	}
	return knob.ByPart(k.File, now, tracesOf(k, t), t.Before, now)
}

// Original returns the value of a knob before Tenon, where t is its journal
// entry, as AttainableEntry returns it, and now its present value. If another
// component has written a part that Tenon had left as it was, Original has the
// new value of this part: the value in the journal is out of date there.
//
// This does not apply to a cpuset of cgroup v1 that has only lost CPUs or memory
// nodes. After a CPU was offline, the kernel may have taken it from the cpuset,
// also if the parent has it again, from Tenon or an administrator.
func Original(c *Knobs, k node.Knob, t journal.Touch, now node.Value) node.Value {
	if t.Written == nil || t.Pending != nil || now == t.Written || c.copies(k) && isSubset(now, t.Before) {
		return t.Before
	}
	left := []node.Value{t.Before}
	if knob.ByPart(k.File, t.Written, left, now, t.Before) == t.Before {
		return t.Before // no part that Tenon left as it was differs now; ToRestore may read files
	}
	return knob.ByPart(k.File, t.Written, left, c.ToRestore(k, t, now), t.Before)
}

// isSubset reports whether a set is a part of another one.
func isSubset(part, of node.Value) bool {
	p, ok1 := part.(node.CPUs)
	o, ok2 := of.(node.CPUs)
	return ok1 && ok2 && o.Set.Contains(p.Set)
}

// isOurs reports whether a present value that differs from what Tenon wrote is
// Tenon's, or whether the knob has its value from before.
func isOurs(c *Knobs, k node.Knob, t journal.Touch, now node.Value) bool {
	return now == t.Before ||
		k.File.OfThreads() || // only Tenon sets these attributes
		cachectl.IsOurs(t, now) ||
		t.Written != nil && c.changedByKernel(k, t.Written, now)
}

func tracesOf(k node.Knob, t journal.Touch) []node.Value {
	return knob.Traces(k.File, t.Before, t.Written, t.Pending)
}

// remainder returns what Tenon's writes have left in a knob. A part that
// another component has written has its former value in the result, so that it
// does not count as Tenon's.
func remainder(c *Knobs, k node.Knob, t journal.Touch, now node.Value) node.Value {
	if isOurs(c, k, t, now) {
		return now
	}
	return knob.ByPart(k.File, now, append(tracesOf(k, t), t.Before), now, cmp.Or(t.Written, t.Before))
}

// prepare brings the entry of a knob up to date before Tenon writes the value to
// to the knob. now is the present value. It returns the new entry and the value
// to write. This is to, except in the parts that another component has changed
// since the policies saw them, where to has only the former value of this
// component: there it is now.
func prepare(c *Knobs, k node.Knob, t journal.Touch, now, to node.Value) (journal.Touch, node.Value, error) {
	t = c.AttainableEntry(k, t)
	// While a knob has its value from before, and no write has succeeded, there
	// is nothing to keep. If the kernel refuses the write, the journal forgets
	// the knob.
	if t.Pending != nil && (t.Written != nil || now != t.Before) {
		if left := remainder(c, k, t, now); left != t.Written {
			if err := c.enter(k, t.Inode, t.Before, left); err != nil {
				return t, to, err
			}
			t.Written = left
		}
		t.Pending = nil
	}
	before := Original(c, k, t, now)
	if before == t.Before {
		return t, to, nil
	}
	// Another process of Tenon, such as the watchdog, may have written the knob
	// after now was read. The value now is then a former one of Tenon.
	if again, err := c.table.Read(k); err != nil || again != now {
		return t, to, err
	}
	to = withOwners(k, t, now, to)
	err := rebase(c, k, t, before)
	t.Before = before
	return t, to, err
}

// withOwners returns the value to with the present parts of now where Tenon has
// left its owner's value so far and to has this value too.
func withOwners(k node.Knob, t journal.Touch, now, to node.Value) node.Value {
	left := knob.ByPart(k.File, t.Written, []node.Value{t.Before}, now, to)
	return knob.ByPart(k.File, to, []node.Value{t.Written}, left, to)
}

// changedByKernel reports whether the kernel itself has changed a written set
// to the present one. On cgroup v1 it removes an offline CPU or memory node
// from every cpuset. When it is online again, the kernel gives it back to the
// root only, and a cgroup whose parent lacks it cannot have it.
func (c *Knobs) changedByKernel(k node.Knob, written, now node.Value) bool {
	w, ok1 := written.(node.CPUs)
	n, ok2 := now.(node.CPUs)
	missing := w.Set.Minus(n.Set)
	if !ok1 || !ok2 || n.Set.Empty() || missing.Empty() || !w.Set.Contains(n.Set) {
		return false
	}
	if c.copies(k) && lackedAbove(c, k, node.CPUs{Set: missing}) {
		return true
	}
	if k.File != node.FileCPUs {
		return false
	}
	online, err := c.o.FS.OnlineCPUs()
	return err == nil && missing.Intersect(online).Empty()
}

// lackedAbove reports whether every cgroup above a cpuset lacks all the missing
// CPUs or memory nodes. The root counts only if there is no other: it gets back
// what comes online. If only some of the cgroups lack them, an owner may have
// moved a part of the tree to other CPUs.
func lackedAbove(c *Knobs, k node.Knob, missing node.CPUs) bool {
	for up := k.Cgroup.Parent(); ; up = up.Parent() {
		v, err := c.table.Read(node.Knob{Cgroup: up, File: k.File})
		set, isSet := v.(node.CPUs)
		if err != nil || !isSet || !set.Set.Intersect(missing.Set).Empty() {
			return false
		}
		if up.Parent() == "" {
			return true
		}
	}
}

// AttainableEntry returns a journal entry without the lines of removed devices.
// The kernel can neither show nor restore such lines.
func (c *Knobs) AttainableEntry(k node.Knob, t journal.Touch) journal.Touch {
	if k.File.Category() == node.CategoryIO {
		t.Before = c.o.Devices.DropImpossible(k, t.Before)
		if t.Written != nil {
			t.Written = c.o.Devices.DropImpossible(k, t.Written)
		}
		if t.Pending != nil {
			t.Pending = c.o.Devices.DropImpossible(k, t.Pending)
		}
	}
	return t
}

// IsDropped reports whether the kernel has dropped a knob and its value,
// although its cgroup exists. This happens if the knob's controller was
// disabled for the cgroup, if resctrl was unmounted, or if a module was
// unloaded. After a controller was unmounted, in contrast, the value may still
// have an effect, and Tenon cannot see it.
func IsDropped(err error) bool {
	file := errors.Is(err, cgroup.ErrUnsupported) && errors.Is(err, iofs.ErrNotExist)
	return file || errors.Is(err, cgroup.ErrGone) || errors.Is(err, resctrl.ErrNotMounted)
}
