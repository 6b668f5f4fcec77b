// Package change writes knobs, and journals each write so that it can be
// undone. Before each write, it journals the new value and the value to
// restore. It restores a part of a knob, such as one file, only if the part
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

// Options hold the other parts of a node that Knobs needs.
type Options struct {
	FS       proc.FS
	Tree     *cgroup.Tree // nil: the node has no usable cgroups; then nothing is changed
	Journal  *journal.Journal
	Devices  *blockio.Devices
	Controls *cachectl.Groups
	// Saw is called with each value that is read after a write.
	Saw func(k node.Knob, now node.Value, err error)
	// Releasing is called before a knob is restored. Released is called when it
	// is restored and still in the journal.
	Releasing func(node.Knob)
	Released  func(node.Knob) error
}

// Knobs changes the knobs of a node. After Use was called, it is safe for
// concurrent use.
type Knobs struct {
	o     Options
	table knob.Table

	mu     sync.Mutex
	former map[node.Knob][]node.Value // of cpusets, see overwritten
	owned  ownedKnobs

	examined map[string]bool // the cgroups that AdoptBorn has examined

	unnoted atomic.Bool // the kernel allows no notes here
}

// New returns the knobs of a node. Use must be called before any other method.
func New(o Options) *Knobs { return &Knobs{o: o} }

// Use sets the adapters that read and write each kind of knob.
func (c *Knobs) Use(table knob.Table) { c.table = table }

// Read reads the present value of a knob.
func (c *Knobs) Read(k node.Knob) (node.Value, error) { return c.table.Read(k) }

// Set writes a knob. Before the write it journals the new value and the value
// to restore. After the write, it journals the value that the kernel shows. If
// another component has just changed a part that Tenon has left as it was, and
// to has the former value there, Set leaves this part to it.
func (c *Knobs) Set(k node.Knob, to node.Value) error {
	i, err := intentionOf(c, k, to)
	if err != nil {
		return err
	}
	if err := c.o.Journal.Intend(k, i.Inode, i.Before, i.Value); err != nil {
		return err
	}
	o, known, err := i.perform()
	switch {
	case !known:
		return err
	case o.Value == nil:
		return errors.Join(err, c.o.Journal.Abandon(k))
	}
	return c.o.Journal.RecordValue(k, o.Value)
}

// An intention is a write that still has to be journaled and performed.
type intention struct {
	journal.Intention
	c      *Knobs
	now    node.Value // before the write
	former node.Value // from before Tenon's first write
}

// intentionOf returns what must be journaled before a value is written to a
// knob.
func intentionOf(c *Knobs, k node.Knob, to node.Value) (i intention, err error) {
	inode, err := c.Inode(k)
	if err != nil {
		return i, err
	}
	now, err := readAnew(c, k)
	if err != nil {
		return i, err
	}
	first := c.originalValue(now)
	t, touched := c.touch(k)
	if touched && t.Inode != inode {
		if t, touched, err = c.handleDisplaced(k); err != nil {
			return i, err
		}
	}
	ours := touched && t.Inode == inode
	if ours {
		if t, to, err = prepare(c, k, t, now, to); err != nil {
			return i, err
		}
	}
	if c.copies(k) {
		if ours {
			c.recordOverwrite(k, now)
		} else {
			c.forgetFormer(k) // of a removed cgroup with this name
			first = c.original(k, now)
		}
		if err := c.adoptChildren(k, to); err != nil {
			return i, err
		}
	}
	if !ours {
		if before, written := c.beforeAnother(k, now); written {
			first = before
		}
	}
	i = intention{journal.Intention{Knob: k, Inode: inode, Before: first, Value: to}, c, now, first}
	if ours {
		i.former = t.Before
	}
	return i, nil
}

// readAnew reads the present value of a knob from the cgroup that has the path
// now. Before that, it closes the files that the tree keeps open at this path: on
// cgroup v1 they may belong to a cgroup that another program has renamed.
func readAnew(c *Knobs, k node.Knob) (node.Value, error) {
	if k.ControlGroup == "" && c.o.Tree != nil && c.o.Tree.Version() == 1 {
		c.o.Tree.Close(string(k.Cgroup))
	}
	return c.table.Read(k)
}

// checkInode returns ErrGone if the path of a knob does not have the cgroup with
// the given inode any more. Another program may have renamed it since its value
// was read, so that the path has another cgroup, whose value is not in the
// journal.
func checkInode(c *Knobs, k node.Knob, inode uint64) error {
	now, err := c.Inode(k)
	if err == nil && now != inode {
		err = fmt.Errorf("write %v: another cgroup has this path now: %w", k, cgroup.ErrGone)
	}
	return err
}

// perform makes a write that is in the journal. known says whether the result
// is known. If not, the entry stays pending, with the new value.
func (i intention) perform() (o journal.Outcome, known bool, err error) {
	c := i.c
	if err := checkInode(c, i.Knob, i.Inode); err != nil {
		c.o.Saw(i.Knob, nil, err)
		return journal.Outcome{Knob: i.Knob}, true, err
	}
	c.writeNote(i.Knob, i.former, i.Value)
	writeErr := c.table.Write(i.Knob, i.Value)
	now, err := c.table.Read(i.Knob)
	c.o.Saw(i.Knob, now, err)
	switch {
	case errors.Is(writeErr, bescheduler.ErrLoading):
		return o, false, writeErr
	case writeErr == nil && err == nil:
		return journal.Outcome{Knob: i.Knob, Value: now}, true, nil
	case err == nil && now == i.now: // the kernel refused the write without any change
		return journal.Outcome{Knob: i.Knob}, true, errors.Join(writeErr, i.correctNote())
	}
	// The value of the knob is a mix of the old and the new value, so its entry
	// stays pending. A release accepts any mix of these two values as Tenon's,
	// and the next write first records which mix it found (prepare).
	return o, false, errors.Join(writeErr, err)
}

// correctNote corrects the note of a knob after the kernel refused the new
// value. If no write of the knob has ever succeeded, it removes the note,
// because the journal forgets the knob, too.
func (i intention) correctNote() error {
	c, k := i.c, i.Knob
	if t, touched := c.touch(k); touched && t.Written != nil {
		c.writeNote(k, t.Before, t.Written)
		return nil
	}
	return unnote(c, k)
}

// originalValue returns the value that a knob had before any change of Tenon. v
// is the present value.
func (c *Knobs) originalValue(v node.Value) node.Value {
	if _, threads := v.(node.Threads); threads {
		// Only Tenon sets this attribute. A thread that has it got it from an
		// earlier Tenon or from its parent.
		return node.ThreadsNormal
	}
	return c.o.Controls.OriginalValue(v)
}

// Inode returns the number that identifies the cgroup or control group of a
// knob. If this group does not exist, it fails with cgroup.ErrGone.
func (c *Knobs) Inode(k node.Knob) (uint64, error) {
	if k.ControlGroup != "" {
		return c.o.Controls.Inode(k.ControlGroup)
	}
	return c.o.Tree.Inode(string(k.Cgroup))
}

// Release restores the value that a knob had before Tenon changed it, and then
// forgets the knob. If another component has changed a part of the knob since
// then, this part stays as it is: see ToRestore.
func (c *Knobs) Release(k node.Knob) error {
	t, touched, err := c.o.Journal.Touch(k)
	if err != nil || !touched {
		return err
	}
	return c.ReleaseAs(k, t)
}

// ReleaseAs does the same as Release. t is the entry of the knob, which need
// not be in the journal: see Copies.
func (c *Knobs) ReleaseAs(k node.Knob, t journal.Touch) error {
	r, err := releaseWorkOf(c, k, c.AttainableEntry(k, t))
	if err != nil || r.moved {
		return err
	}
	if r.write {
		if err := (&releaseBatch{c: c, todo: []releaseWork{r}}).intend(); err != nil {
			return err
		}
		if r.touch, err = r.giveBack(); err != nil {
			return err
		}
		if err := r.check(); err != nil {
			return err
		}
	}
	if err = r.finish(); err != nil && !r.gone {
		return err
	}
	return errors.Join(err, c.Forget(k))
}

// A releaseWork is the work of a release before the journal forgets the knob.
type releaseWork struct {
	c             *Knobs
	knob          node.Knob
	touch         journal.Touch // with the value to write as Before
	gone, dropped bool          // the cgroup or the knob does not exist any more, so its value is gone
	moved         bool          // the cgroup has another name now, and its entry was renamed, too
	write         bool          // the knob still has a value of Tenon
	rebase        bool          // touch.Before is not yet in the journal
	// If the journal does not know what Tenon's writes have left, this is left,
	// and otherwise nil.
	left node.Value
}

// releaseWorkOf returns the work of a release of the knob.
func releaseWorkOf(c *Knobs, k node.Knob, t journal.Touch) (r releaseWork, err error) {
	r = releaseWork{c: c, knob: k, touch: t}
	inode, err := c.Inode(k)
	if errors.Is(err, cgroup.ErrGone) || (err == nil && inode != t.Inode) {
		now, touched, err := c.handleDisplaced(k)
		r.gone = true
		r.moved = err != nil || !touched || now.Inode != t.Inode // its entry was renamed together with the cgroup
		return r, err
	}
	if err != nil {
		return r, err
	}
	now, err := readAnew(c, k)
	c.o.Saw(k, now, err)
	if IsDropped(err) {
		r.dropped = true
		return r, nil
	}
	if err != nil {
		return r, err
	}
	c.o.Releasing(k)
	r.touch.Before = c.ToRestore(k, t, now)
	r.write, r.rebase = r.touch.Before != now, r.touch.Before != t.Before
	if t.Pending == nil {
		return r, nil
	}
	// A value that is both written and pending is not in the journal: it is from
	// a note, or a copy (InheritedEntry).
	if left := remainder(c, k, t, now); left != t.Written || t.Pending == t.Written {
		r.left = left
	}
	return r, nil
}

// giveBack writes the value to restore, which must already be in the journal.
// While the kernel refuses the value, giveBack tries the alternative, and puts
// it into the entry that it returns.
func (r releaseWork) giveBack() (journal.Touch, error) {
	c, k, t := r.c, r.knob, r.touch
	if err := checkInode(c, k, t.Inode); err != nil {
		return t, err
	}
	err := c.table.Write(k, t.Before)
	for next := c.alternative(k, t.Before, err); next != nil; next = c.alternative(k, t.Before, err) {
		t.Before = next
		if err = c.o.Journal.Intend(k, t.Inode, t.Before, t.Before); err == nil {
			err = c.table.Write(k, t.Before)
		}
	}
	return t, err
}

// check reads the knob after giveBack. It fails if the knob does not have the
// value to restore.
func (r releaseWork) check() error {
	c, k, t := r.c, r.knob, r.touch
	now, err := c.table.Read(k)
	if c.o.Saw(k, now, err); err != nil {
		return err
	}
	if now != t.Before {
		return fmt.Errorf("%v was %v before and now reads %v", k, t.Before, now)
	}
	return nil
}

// finish does what must be done between the write of a release and the removal
// of the knob from the journal.
func (r releaseWork) finish() error {
	if r.dropped {
		return nil
	}
	return r.c.o.Released(r.knob)
}
