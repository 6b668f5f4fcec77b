package change

import (
	"errors"
	iofs "io/fs"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/resctrl"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// HoldsOurs reports whether the present value of a knob is the one that Tenon
// wrote, or what the kernel made of it. If not, another component has written
// the knob.
func (c *Knobs) HoldsOurs(k node.Knob, t journal.Touch, now node.Value) bool {
	if k.File.OfThreads() {
		return true // only Tenon sets these attributes
	}
	if t.Written != nil && (now == t.Written || c.changedByKernel(k, t.Written, now)) || cachectl.IsOurs(t, now) {
		return true
	}
	if k.File == node.FileMemory && t.Written != nil && knob.IsBetween(k.File, t.Before, t.Written, now) {
		return true // each file has Tenon's value or the value from before: a kubelet that starts restores some of them
	}
	if t.Pending == nil {
		return false
	}
	from := t.Written
	if from == nil {
		from = t.Before
	}
	return knob.IsBetween(k.File, from, t.Pending, now)
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
	if c.copies(k) {
		above, err := c.table.Read(node.Knob{Cgroup: k.Cgroup.Parent(), File: k.File})
		if set, isSet := above.(node.CPUs); err == nil && isSet && set.Set.Intersect(missing).Empty() {
			return true
		}
	}
	if k.File != node.FileCPUs {
		return false
	}
	cpus, err := c.o.FS.Topology()
	if err != nil {
		return false
	}
	for _, c := range cpus {
		if missing.Has(c.ID) {
			return false
		}
	}
	return true
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
