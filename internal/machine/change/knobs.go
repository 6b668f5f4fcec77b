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
	owned  owned

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
	i, err := intentionOf(c, k, to)
	if err != nil {
		return err
	}
	if err := c.o.Journal.Intend(k, i.Inode, i.Before, to); err != nil {
		return err
	}
	o, known, err := i.perform()
	switch {
	case !known:
		return err
	case o.Value == nil:
		return errors.Join(err, c.o.Journal.Abandon(k))
	}
	return c.o.Journal.Wrote(k, o.Value)
}

// An intention is a write that is to be journaled and performed.
type intention struct {
	journal.Intention
	c      *Knobs
	now    node.Value // before the write
	former node.Value // from before Tenon's first write
}

// intentionOf returns what to journal before a value is written to a knob.
func intentionOf(c *Knobs, k node.Knob, to node.Value) (i intention, err error) {
	inode, err := c.Inode(k)
	if err != nil {
		return i, err
	}
	now, err := c.table.Read(k)
	if err != nil {
		return i, err
	}
	first := c.before(now)
	t, touched := c.touch(k)
	if touched && t.Inode != inode {
		if t, touched, err = c.displaced(k); err != nil {
			return i, err
		}
	}
	ours := touched && t.Inode == inode
	if c.copies(k) {
		if ours {
			c.overwritten(k, now)
		} else {
			first = c.original(k, now)
		}
		if err := c.own(k, to); err != nil {
			return i, err
		}
	}
	i = intention{journal.Intention{Knob: k, Inode: inode, Before: first, Value: to}, c, now, first}
	if ours {
		i.former = t.Before
	}
	return i, nil
}

// perform writes an intended value that is in the journal. It reports whether the
// outcome is known; if not, the entry stays pending with the new value.
func (i intention) perform() (o journal.Outcome, known bool, err error) {
	c := i.c
	c.noted(i.Knob, i.former, i.Value)
	writeErr := c.table.Write(i.Knob, i.Value)
	now, err := c.table.Read(i.Knob)
	c.o.Saw(i.Knob, now, err)
	switch {
	case errors.Is(writeErr, bescheduler.ErrLoading):
		return o, false, writeErr
	case writeErr == nil && err == nil:
		return journal.Outcome{Knob: i.Knob, Value: now}, true, nil
	case err == nil && now == i.now: // refused without any change
		return journal.Outcome{Knob: i.Knob}, true, errors.Join(writeErr, i.refused())
	}
	// The knob is between the two values. Its entry stays pending, so that a
	// restore accepts any mix of them as Tenon's.
	return o, false, errors.Join(writeErr, err)
}

// refused sets the note of a knob whose new value the kernel refused. A knob
// without any successful write will leave the journal, and its note goes.
func (i intention) refused() error {
	c, k := i.c, i.Knob
	if t, touched := c.touch(k); touched && t.Written != nil {
		c.noted(k, t.Before, t.Written)
		return nil
	}
	return unnote(c, k)
}

// before returns the value that a knob had before Tenon changed anything, if it
// now reads as v.
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
	r, err := returningOf(c, k, t)
	if err != nil || r.moved {
		return err
	}
	if r.write {
		if err := c.o.Journal.Intend(k, t.Inode, t.Before, t.Before); err != nil {
			return err
		}
		if err := r.giveBack(); err != nil {
			return err
		}
	}
	if err = r.left(); err != nil && !r.gone {
		return err
	}
	return errors.Join(err, c.Forget(k))
}

// A returning is what the release of a knob has to do, besides to forget it.
type returning struct {
	c             *Knobs
	knob          node.Knob
	touch         journal.Touch
	gone, dropped bool // the cgroup, or the knob, is gone with its value
	moved         bool // the cgroup has another name now, and so has its entry
	write         bool // the knob still has Tenon's value
}

// returningOf says what the release of a knob has to do.
func returningOf(c *Knobs, k node.Knob, t journal.Touch) (r returning, err error) {
	r = returning{c: c, knob: k, touch: t}
	inode, err := c.Inode(k)
	if errors.Is(err, cgroup.ErrGone) || (err == nil && inode != t.Inode) {
		now, touched, err := c.displaced(k)
		r.gone = true
		r.moved = err != nil || !touched || now.Inode != t.Inode // its entry has moved along with the cgroup
		return r, err
	}
	if err != nil {
		return r, err
	}
	now, err := c.table.Read(k)
	c.o.Saw(k, now, err)
	if Dropped(err) {
		r.dropped = true
		return r, nil
	}
	if err != nil {
		return r, err
	}
	c.o.Releasing(k)
	r.write = now != t.Before && c.Ours(k, t, now)
	return r, nil
}

// giveBack writes the value from before, whose write is in the journal.
func (r returning) giveBack() error {
	c, k, t := r.c, r.knob, r.touch
	err := c.table.Write(k, t.Before)
	if next := c.nextTo(k, t.Before, err); next != nil {
		t.Before = next
		if err = c.o.Journal.Intend(k, t.Inode, t.Before, t.Before); err == nil {
			err = c.table.Write(k, t.Before)
		}
	}
	if err != nil {
		return err
	}
	now, err := c.table.Read(k)
	if c.o.Saw(k, now, err); err != nil {
		return err
	}
	if now != t.Before {
		return fmt.Errorf("%v was %v before and now reads %v", k, t.Before, now)
	}
	return nil
}

// left does what follows the release of a knob, before the journal forgets it.
func (r returning) left() error {
	if r.dropped {
		return nil
	}
	if err := r.c.o.Released(r.knob); err != nil {
		return err
	}
	if !r.gone {
		r.c.forgetFormer(r.knob)
	}
	return nil
}
