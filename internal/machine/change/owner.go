package change

import (
	"errors"
	"maps"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/process"
	"tenon.sh/tenon/internal/model/node"
)

// Rebase changes the values that a release restores. It passes the value that a
// knob had before Tenon's first write to a function (change), which returns the
// value that the owner of the knob would have written by now, or nil if it is
// the same. Rebase is for knobs that another component derives from a user's
// settings, as the kubelet does for pods. It writes only the journal.
func (c *Knobs) Rebase(change func(k node.Knob, before node.Value) node.Value) error {
	touches, err := c.ReleasableKnobs()
	if err != nil {
		return err
	}
	var errs []error
	for k, t := range touches {
		if next := change(k, t.Before); next != nil && next != t.Before {
			if t.Written != nil {
				c.writeNote(k, next, t.Written)
			}
			errs = append(errs, c.o.Journal.Rebase(k, next))
		}
	}
	return errors.Join(errs...)
}

// ReleasableKnobs returns the journaled knobs that this process may release.
// Knobs of other living Tenon processes are not among them. The caller must not
// change the map. While the journal does not change, each call returns the same
// map.
func (c *Knobs) ReleasableKnobs() (map[node.Knob]journal.Touch, error) {
	// Read the counter first. If the journal changes after this, the next call
	// reads it again.
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
			others = process.Alive(c.o.FS, journal.Process{PID: t.By.PID, Start: t.By.Start})
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

// ownedKnobs holds the last result of ReleasableKnobs, and the number of
// changes that the journal had before that.
type ownedKnobs struct {
	at      uint64
	touches map[node.Knob]journal.Touch
}

// Adopt makes this process responsible for knobs that other Tenon processes had
// changed when they ended, so that an agent continues where the last one
// stopped. It does not adopt changes of a lab, which a restore undoes. Before
// that, it adds changes to the journal that are only in the notes at the
// cgroups. It returns how many knobs and cgroups these are.
func (c *Knobs) Adopt() (recovered int, err error) {
	touches, err := c.ReleasableKnobs()
	touches = maps.Clone(touches)
	if err == nil && c.o.Tree != nil {
		err = c.Follow(touches, c.o.Tree.Paths)
	}
	if err != nil {
		return 0, err
	}
	recovered, err = c.recover()
	var knobs []node.Knob
	for k, t := range touches {
		if !t.By.Lab {
			knobs = append(knobs, k)
		}
	}
	return recovered, errors.Join(err, c.o.Journal.Adopt(knobs))
}
