package restore

import (
	"fmt"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/change"
)

// lookElsewhere adds to a report what Tenons with other state directories have
// changed, and whether this process could see it. What a walk has missed is named
// by the restore itself.
func (x *Restorer) lookElsewhere(r *Report) error {
	if r.Unseen = x.o.Tree == nil || !cgroup.NotesReadable(); r.Unseen {
		return nil
	}
	paths, err := x.o.Tree.Paths()
	if err != nil && !partial.Is(err) {
		r.Unseen = true
		return fmt.Errorf("look for notes at the cgroups: %w", err)
	}
	r.Elsewhere, err = change.FindElsewhere(x.o.Knobs, paths)
	_, err = partial.Split(err) //nolint:errcheck // the restore itself names what a walk has missed
	return err
}

// changed says how many knobs another Tenon has changed, and how many cgroups it
// has made.
func changed(knobs, groups int) string {
	was, made := count(knobs, "knob was", "knobs were")+" changed", count(groups, "cgroup was", "cgroups were")+" made"
	switch {
	case groups == 0:
		return was
	case knobs == 0:
		return made
	}
	return was + " and " + made
}
