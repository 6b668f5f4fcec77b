// Package change writes knobs so that they can be put back: it journals the value
// from before and the new value before each write, and gives a knob back only if it
// still has Tenon's value.
package change

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/bescheduler"
	"tenon.sh/tenon/internal/machine/blockio"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// Options are what the changes of a node need of it.
type Options struct {
	FS       proc.FS
	Tree     *cgroup.Tree // nil: the node has no usable cgroups; then nothing is changed
	Journal  *journal.Journal
	Devices  *blockio.Devices
	Controls *cachectl.Groups
	// Saw is called with each value that was read after a write.
	Saw func(k node.Knob, now node.Value, err error)
	// Releasing is called before a knob is given back, and Released afterwards,
	// before the journal forgets the knob.
	Releasing func(node.Knob)
	Released  func(node.Knob) error
}

// Knobs changes the knobs of a node. It is safe for concurrent use, once Use was
// called.
type Knobs struct {
	o     Options
	table knob.Table

	mu     sync.Mutex
	former map[node.Knob][]node.Value // of cpusets, see overwritten

	examined map[string]bool // the cgroups that AdoptBorn has examined

	unnoted atomic.Bool // the kernel allows no notes here
}

// New returns the knobs of a node. Use must be called before others.
func New(o Options) *Knobs { return &Knobs{o: o} }

// Use sets how each kind of knob is read and written.
func (c *Knobs) Use(table knob.Table) { c.table = table }

// Read reads the present value of a knob.
func (c *Knobs) Read(k node.Knob) (node.Value, error) { return c.table.Read(k) }

// Set writes a knob. It journals the value from before and the new value before the
// write, and afterwards the value that the kernel shows.
func (c *Knobs) Set(k node.Knob, to node.Value) error {
	inode, err := c.Inode(k)
	if err != nil {
		return err
	}
	before, err := c.table.Read(k)
	if err != nil {
		return err
	}
	first := c.before(before)
	t, touched := c.touch(k)
	if touched && t.Inode != inode {
		if t, touched, err = c.displaced(k); err != nil {
			return err
		}
	}
	if c.copies(k) {
		if touched && t.Inode == inode {
			c.overwritten(k, before)
		} else {
			first = c.original(k, before)
		}
		if err := c.own(k, to); err != nil {
			return err
		}
	}
	if err := c.o.Journal.Intend(k, inode, first, to); err != nil {
		return err
	}
	if touched && t.Inode == inode {
		first = t.Before
	}
	c.noted(k, first, to)
	writeErr := c.table.Write(k, to)
	now, err := c.table.Read(k)
	c.o.Saw(k, now, err)
	if errors.Is(writeErr, bescheduler.ErrLoading) {
		return writeErr // the entry stays pending with the new value
	}
	if writeErr == nil && err == nil {
		return c.o.Journal.Wrote(k, now)
	}
	if err == nil && now == before { // refused without any change
		return errors.Join(writeErr, c.abandon(k))
	}
	// The knob is between the two values. Its entry stays pending, so that a
	// restore accepts any mix of them as Tenon's.
	return errors.Join(writeErr, err)
}

// abandon journals that the kernel refused a value. A knob without any
// successful write leaves the journal, and its note goes.
func (c *Knobs) abandon(k node.Knob) error {
	if t, touched := c.touch(k); touched && t.Written != nil {
		c.noted(k, t.Before, t.Written)
		return c.o.Journal.Abandon(k)
	}
	return c.Forget(k)
}

// before returns the value from before Tenon of a knob that reads as v.
func (c *Knobs) before(v node.Value) node.Value {
	if _, threads := v.(node.Threads); threads {
		// A thread that had it before had it from an earlier Tenon, or from its
		// parent.
		return node.ThreadsNormal
	}
	return c.o.Controls.Before(v)
}

// Inode identifies the cgroup or the control group of a knob. It fails with
// cgroup.ErrGone if there is none.
func (c *Knobs) Inode(k node.Knob) (uint64, error) {
	if k.ControlGroup != "" {
		return c.o.Controls.Inode(k.ControlGroup)
	}
	return c.o.Tree.Inode(string(k.Cgroup))
}

// Release restores the value from before of a knob that Tenon has changed, unless
// another component has changed it since, and then forgets the knob.
func (c *Knobs) Release(k node.Knob) error {
	t, touched, err := c.o.Journal.Touch(k)
	if err != nil || !touched {
		return err
	}
	return c.ReleaseAs(k, t)
}

// ReleaseAs is Release for a knob whose entry may not be in the journal: see
// Copies.
func (c *Knobs) ReleaseAs(k node.Knob, t journal.Touch) error {
	t = c.Attainable(k, t)
	inode, err := c.Inode(k)
	if errors.Is(err, cgroup.ErrGone) || (err == nil && inode != t.Inode) {
		if now, touched, err := c.displaced(k); err != nil || !touched || now.Inode != t.Inode {
			return err // its entry has moved along with the cgroup
		}
		return errors.Join(c.o.Released(k), c.Forget(k)) // the cgroup and its knobs are gone
	}
	if err != nil {
		return err
	}
	now, err := c.table.Read(k)
	c.o.Saw(k, now, err)
	if Dropped(err) {
		return c.Forget(k)
	}
	if err != nil {
		return err
	}
	c.o.Releasing(k)
	if now != t.Before && c.Ours(k, t, now) {
		if err := c.o.Journal.Intend(k, inode, t.Before, t.Before); err != nil {
			return err
		}
		err := c.table.Write(k, t.Before)
		if next := c.nextTo(k, t.Before, err); next != nil {
			t.Before = next
			if err = c.o.Journal.Intend(k, inode, t.Before, t.Before); err == nil {
				err = c.table.Write(k, t.Before)
			}
		}
		if err != nil {
			return err
		}
		now, err = c.table.Read(k)
		if c.o.Saw(k, now, err); err != nil {
			return err
		}
		if now != t.Before {
			return fmt.Errorf("%v was %v before and now reads %v", k, t.Before, now)
		}
	}
	if err := c.o.Released(k); err != nil {
		return err
	}
	c.forgetFormer(k)
	return c.Forget(k)
}
