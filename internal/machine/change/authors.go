package change

import (
	"slices"

	"tenon.sh/tenon/internal/machine/journal"
)

// A Running is a process that still runs and that has changed knobs or made cgroups,
// as notes say, but is not in this journal. It sees another state directory by the
// same path, for example in a container.
type Running struct {
	PID    int `json:"pid"`
	Knobs  int `json:"knobs"`
	Groups int `json:"groups"` // that it made
}

// authors finds out which authors of notes run and write another journal.
type authors struct {
	of    *Knobs
	ours  []journal.Process
	found map[journal.Process]*Running // nil: it does not run, or is in this journal
}

func authorsOf(c *Knobs, known journal.State) *authors {
	a := &authors{of: c, ours: []journal.Process{author(c.o.Journal.Session())}, found: map[journal.Process]*Running{}}
	for _, s := range Sessions(known) {
		a.ours = append(a.ours, author(s))
	}
	return a
}

func author(s journal.Session) journal.Process { return journal.Process{PID: s.PID, Start: s.Start} }

// writesElsewhere reports whether the author of a note runs and is not in this
// journal, and counts the note.
func (a *authors) writesElsewhere(by journal.Session, made bool) bool {
	p := author(by)
	r, known := a.found[p]
	if !known {
		if pid, runs := FindProcess(a.of.o.FS, p); runs && !slices.Contains(a.ours, p) && !a.hasJoined(p) {
			r = &Running{PID: pid}
		}
		a.found[p] = r
	}
	switch {
	case r == nil:
		return false
	case made:
		r.Groups++
	default:
		r.Knobs++
	}
	return true
}

// hasJoined reports whether the journal has got entries of a process since it was
// read: a launcher journals a change, and then writes the note.
func (a *authors) hasJoined(p journal.Process) bool {
	state, err := a.of.o.Journal.State()
	return err == nil && slices.ContainsFunc(Sessions(state), func(s journal.Session) bool { return author(s) == p })
}

func (a *authors) running() []Running {
	var all []Running
	for _, r := range a.found {
		if r != nil {
			all = append(all, *r)
		}
	}
	return slices.SortedFunc(slices.Values(all), func(x, y Running) int { return x.PID - y.PID })
}
