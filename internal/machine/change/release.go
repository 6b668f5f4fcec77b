package change

import (
	"errors"
	"slices"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// ReleaseAs does the same as Knobs.ReleaseAs, for any number of knobs. It
// returns one error, or nil, for each knob.
//
// On cgroup v1, the kernel makes only one write of a cpuset at a time. Among
// thousands of cpusets it takes most of a millisecond. So three batches are in
// work at once: while one batch is written, the one before is read back and
// forgotten, and the next one is read and journaled.
func (c ManyKnobs) ReleaseAs(all []Taken) []error {
	prepared, written := make(chan *releaseBatch), make(chan *releaseBatch)
	go func() {
		defer close(prepared)
		for part := range slices.Chunk(all, MaxKnobs) {
			prepared <- prepareRelease(c.Knobs, part)
		}
	}()
	go func() {
		defer close(written)
		for b := range prepared {
			b.write()
			written <- b
		}
	}()
	errs := make([]error, 0, len(all))
	for b := range written {
		b.finish()
		errs = append(errs, b.errs...)
	}
	return errs
}

// A releaseBatch is a number of knobs that are released together.
type releaseBatch struct {
	c    *Knobs
	all  []Taken
	todo []releaseWork
	errs []error // one for each knob
	// full says that the journal could not take the entries of all knobs at
	// once, because the file system is full. One by one, it still accepts
	// entries of knobs that it already has.
	full bool
}

// prepareRelease reads the knobs, and journals the writes.
func prepareRelease(c *Knobs, all []Taken) *releaseBatch {
	b := &releaseBatch{c: c, all: all, todo: make([]releaseWork, len(all)), errs: make([]error, len(all))}
	for n := range all {
		k, t := all[n].Knob, c.AttainableEntry(all[n].Knob, all[n].Touch)
		b.todo[n], b.errs[n] = releaseWorkOf(c, k, t)
	}
	b.full = b.intend() != nil
	return b
}

// intend journals the writes. Before that it journals what earlier writes of
// Tenon have left, where the journal does not know it, because the kernel may
// refuse the new value. Then it journals the values from before that differ
// from those in the journal.
func (b *releaseBatch) intend() error {
	var left, intended []journal.Intention
	var outcomes []journal.Outcome
	for _, r := range b.todo {
		if !r.write {
			continue
		}
		i := journal.Intention{Knob: r.knob, Inode: r.touch.Inode, Before: r.touch.Before, Value: r.touch.Before}
		intended = append(intended, i)
		if r.left != nil {
			i.Value = r.left
			left, outcomes = append(left, i), append(outcomes, journal.Outcome{Knob: r.knob, Value: r.left})
		}
	}
	j := b.c.o.Journal
	if len(left) > 0 {
		if err := j.IntendAll(left); err != nil {
			return err
		}
		if err := j.ConfirmAll(outcomes); err != nil {
			return err
		}
	}
	for _, r := range b.todo {
		if r.write && r.rebase {
			if err := rebase(b.c, r.knob, r.touch, r.touch.Before); err != nil {
				return err
			}
		}
	}
	return j.IntendAll(intended)
}

// write writes the values to restore.
func (b *releaseBatch) write() {
	for n, a := range b.all {
		switch {
		case b.errs[n] != nil:
		case b.full:
			b.errs[n] = b.c.ReleaseAs(a.Knob, a.Touch)
		case b.todo[n].write:
			b.todo[n].touch, b.errs[n] = b.todo[n].giveBack()
		}
	}
}

// finish reads the knobs back. If a knob has the value to restore, finish
// removes it from the journal.
func (b *releaseBatch) finish() {
	if b.full {
		return
	}
	var forgotten []node.Knob
	var left []int
	for n, a := range b.all {
		work := b.todo[n]
		if work.moved {
			continue
		}
		if b.errs[n] == nil && work.write {
			b.errs[n] = work.check()
		}
		if b.errs[n] == nil {
			b.errs[n] = work.finish()
		}
		if b.errs[n] == nil || work.gone {
			forgotten, left = append(forgotten, a.Knob), append(left, n)
		}
	}
	if err := (ManyKnobs{b.c}).Forget(forgotten); err != nil {
		for _, n := range left {
			b.errs[n] = errors.Join(b.errs[n], err)
		}
	}
}
