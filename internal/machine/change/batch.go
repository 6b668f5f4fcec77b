package change

import (
	"errors"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// MaxKnobs is the maximum number of knobs that ManyKnobs may change in one
// call. To journal so many knobs costs little more than to journal one.
const MaxKnobs = 256

// IsPlain reports whether a knob consists only of files of a cgroup. ManyKnobs
// can change only such knobs.
func IsPlain(k node.Knob) bool {
	return k.ControlGroup == "" && k.File.Category() == node.CategoryGroup
}

// CountTogether returns how many of the first n knobs one call of ManyKnobs.Set
// may change: at most MaxKnobs, counted as in CountAtOneDepth.
func CountTogether(n int, knob func(int) node.Knob) int {
	return CountAtOneDepth(min(n, MaxKnobs), knob)
}

// CountAtOneDepth returns how many of the first n knobs one call of
// ManyKnobs.ReleaseAs may change. They must be plain knobs of cgroups at the
// same depth. The reason is that the value of a cgroup limits the values of the
// cgroups below it.
func CountAtOneDepth(n int, knob func(int) node.Knob) int {
	if n == 0 || !IsPlain(knob(0)) {
		return min(n, 1)
	}
	depth := knob(0).Cgroup.Depth()
	for i := range n {
		if k := knob(i); !IsPlain(k) || k.Cgroup.Depth() != depth {
			return i
		}
	}
	return n
}

// A Change is a value for a knob.
type Change struct {
	Knob node.Knob
	To   node.Value
}

// ManyKnobs changes several plain knobs in one call. CountTogether says how
// many Set may change.
type ManyKnobs struct{ *Knobs }

// Set does the same as Knobs.Set, for several knobs. It journals all of them
// before the first write. It returns one error, or nil, for each knob.
func (c ManyKnobs) Set(all []Change) []error {
	errs := make([]error, len(all))
	var todo []intention
	var at []int // the position of each element of todo in all
	for n, ch := range all {
		i, err := intentionOf(c.Knobs, ch.Knob, ch.To)
		if errs[n] = err; err == nil {
			todo, at = append(todo, i), append(at, n)
		}
	}
	intended := make([]journal.Intention, 0, len(todo))
	for _, i := range todo {
		intended = append(intended, i.Intention)
	}
	if err := c.o.Journal.IntendAll(intended); err != nil {
		// If the file system is full, the journal still accepts entries of
		// knobs that it already has.
		for _, n := range at {
			errs[n] = c.Knobs.Set(all[n].Knob, all[n].To)
		}
		return errs
	}
	outcomes := make([]journal.Outcome, 0, len(todo))
	for n, i := range todo {
		o, known, err := i.perform()
		if errs[at[n]] = err; known {
			outcomes = append(outcomes, o)
		}
	}
	if err := c.o.Journal.ConfirmAll(outcomes); err != nil {
		for _, n := range at {
			errs[n] = errors.Join(errs[n], err)
		}
	}
	return errs
}

// A Taken is a knob that Tenon has changed, together with its journal entry.
type Taken struct {
	Knob  node.Knob
	Touch journal.Touch
}

// Release does the same as Knobs.Release, for several knobs. It returns one
// error, or nil, for each knob.
func (c ManyKnobs) Release(knobs []node.Knob) []error {
	errs := make([]error, len(knobs))
	var all []Taken
	var at []int
	for n, k := range knobs {
		t, touched, err := c.o.Journal.Touch(k)
		if errs[n] = err; err == nil && touched {
			all, at = append(all, Taken{k, t}), append(at, n)
		}
	}
	for i, err := range c.ReleaseAs(all) {
		errs[at[i]] = err
	}
	return errs
}
