package restore

import (
	"fmt"

	"tenon.sh/tenon/internal/kernel/note"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/change"
)

// lookElsewhere adds to a report what Tenons with other state directories have
// changed, and whether this process could see it. What a walk has missed is named
// by the restore itself.
func (x *Restorer) lookElsewhere(r *Report) error {
	if r.Unseen = x.o.Tree == nil || !note.Readable(); r.Unseen {
		return nil
	}
	paths, err := x.o.Tree.Paths()
	if err != nil && !partial.Is(err) {
		r.Unseen = true
		return fmt.Errorf("look for notes at the cgroups: %w", err)
	}
	r.Elsewhere, err = change.FindElsewhere(x.o.Knobs, paths)
	_, err = partial.Split(err)
	return err
}

// changed says what a Tenon with another state directory has changed.
func changed(e change.Elsewhere) string {
	knobs := count(e.Knobs, "knob was", "knobs were") + " changed"
	groups := count(e.Groups, "cgroup was", "cgroups were") + " made"
	switch {
	case e.Groups == 0:
		return knobs
	case e.Knobs == 0:
		return groups
	}
	return knobs + " and " + groups
}
