package change

import (
	"errors"
	"maps"

	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// Rebase changes the values that a release restores. It is for knobs that
// another component derives from a user's settings, as the kubelet does for
// pods. Rebase calls the function change with the value before Tenon's first
// write. change returns the value that the other component would have written
// by now, or nil if that is the same value. Rebase writes only the journal.
func (c *Knobs) Rebase(change func(k node.Knob, before node.Value) node.Value) error {
	touches, err := c.ReleasableKnobs()
	if err != nil {
		return err
	}
	var errs []error
	for k, t := range touches {
		if next := change(k, t.Before); next != nil && next != t.Before {
			errs = append(errs, rebase(c, k, t, next))
		}
	}
	return errors.Join(errs...)
}

// rebase changes the value that a release of one knob restores, in the note of
// the knob and in the journal.
func rebase(c *Knobs, k node.Knob, t journal.Touch, before node.Value) error {
	if t.Written != nil {
		c.writeNote(k, before, t.Written)
	}
	return c.o.Journal.Rebase(k, before)
}

// ReleasableKnobs returns the journaled knobs that this process may release:
// all but those of other living Tenon processes. The caller must not change the
// map. While the journal does not change, each call returns the same map.
func (c *Knobs) ReleasableKnobs() (map[node.Knob]journal.Touch, error) {
	// Read the counter first. If the journal changes after this line, the next
	// call reads the journal again.
	changes, err := c.o.Journal.Changes()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	own := c.owned
	c.mu.Unlock()
	if own.touches != nil && own.at == changes {
		return own.touches, nil
	}
	state, err := c.o.Journal.State()
	if err != nil {
		return nil, err
	}
	lives := map[journal.Session]bool{c.o.Journal.Session(): false}
	left := false
	for k, t := range state.Touches {
		others, known := lives[t.By]
		if !known {
			others = Alive(c.o.FS, journal.Process{PID: t.By.PID, Start: t.By.Start})
			lives[t.By] = others
		}
		if others {
			left = true
			delete(state.Touches, k)
		}
	}
	if left { // its processes may end without an entry in the journal
		return state.Touches, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owned = ownedKnobs{changes, state.Touches}
	return state.Touches, nil
}

// ownedKnobs holds the last result of ReleasableKnobs, and the journal's count
// of changes at that time.
type ownedKnobs struct {
	at      uint64
	touches map[node.Knob]journal.Touch
}

// Adopt makes this process responsible for knobs that ended Tenon processes
// have changed, so that an agent continues where the last one stopped. Changes
// of a lab are excepted, because a restore undoes them. Adopt first adds to the
// journal the changes that only the notes of the cgroups have. It returns how
// many knobs and cgroups these are. With a partial.Error, it has done so for all
// cgroups that can be read.
func (c *Knobs) Adopt() (recovered int, err error) {
	touches, err := c.ReleasableKnobs()
	touches = maps.Clone(touches)
	if err == nil && c.o.Tree != nil {
		err = c.Follow(touches, c.o.Tree.Paths)
	}
	if err != nil && !partial.Is(err) {
		return 0, err
	}
	recovered, err = c.recover() // it misses the same cgroups
	var knobs []node.Knob
	for k, t := range touches {
		if !t.By.Lab {
			knobs = append(knobs, k)
		}
	}
	return recovered, errors.Join(err, c.o.Journal.Adopt(knobs))
}
