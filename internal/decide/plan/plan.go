// Package plan turns the wants of the policies into an ordered list of writes.
// It decides the order of the writes, their maximum number, and whether a knob
// already has the wanted value. The real node, the simulator and a dry run all
// use it.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// An Intent says what a policy does with a knob that it owns.
type Intent string

// The values of Intent.
const (
	// Set sets a value.
	Set Intent = "set"
	// Release gives the knob back. The knob gets the value that it had before
	// Tenon's first write, and the journal forgets it.
	Release Intent = "release"
	// Abstain leaves the knob as it is, because an input is missing.
	Abstain Intent = "abstain"
	// Pause leaves for a while the value that another component wrote. After that,
	// the knob gets Value (decide/writeconflict). Records and answers say "hold".
	Pause Intent = "hold"
)

// A Want is the value that a policy wants for one knob, and its reason.
type Want struct {
	Intent Intent
	Knob   node.Knob
	// Value is the wanted value. It is nil unless Intent is Set or Pause.
	Value node.Value
	// Owner is the policy that owns the knob.
	Owner Owner
	// Reason is one short sentence. It appears in golden files, in tenon plan
	// and in the audit log.
	Reason string
	// BE marks a knob that bounds BE work. A step that narrows such a knob
	// protects LS. Therefore that step comes first, and Bound does not drop it.
	BE bool
}

// Outcome returns the value that the knob will have when the want is carried
// out. It returns nil if that value is unknown.
func (w Want) Outcome(k node.Knobs) node.Value {
	before, touched := k.Before[w.Knob]
	switch {
	case w.Intent == Set:
		return w.Value
	case w.Intent == Release && touched:
		return before
	}
	return k.Now[w.Knob]
}

// Join returns the wants of all parts in one list. The list has capacity for
// some more wants (more). Join allocates the list at once, because repeated
// append caused a fifth of all allocations of a tick.
func Join(more int, parts ...[]Want) []Want {
	for _, p := range parts {
		more += len(p)
	}
	all := make([]Want, 0, more)
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// A Step is one write of one knob: its present value and its new value.
type Step struct {
	Knob   node.Knob
	From   node.Value // nil: unknown, the knob could not be read
	To     node.Value
	Owner  Owner
	Reason string
	// Release marks a step that gives the knob back. After the step, the
	// journal forgets the knob.
	Release bool
	// BE has the meaning of Want.BE.
	BE bool
}

// String prints the step as a scenario does: "be cpu.max max 100000 -> 35000
// 100000  # reason".
func (s Step) String() string {
	from := "?"
	if s.From != nil {
		from = quoteEmpty(s.From.String())
	}
	line := fmt.Sprintf("%v %s -> %s", s.Knob, from, quoteEmpty(s.To.String()))
	if s.Reason != "" {
		line += "  # " + s.Reason
	}
	return line
}

func quoteEmpty(s string) string {
	if s == "" {
		return `""`
	}
	return s
}

// narrows reports whether the new value allows less than the present one.
func (s Step) narrows() bool { return s.From != nil && s.To.CompareWidth(s.From) < 0 }

// childFirst reports whether a step on a child must come before the step on its
// parent. This is so for a step that narrows, and for a step that removes an
// identity mark. It is not so for a step that sets an identity mark, even if it
// narrows: the mark has no effect below a parent without one.
func (s Step) childFirst() bool {
	switch node.Value(node.IdentityNone) {
	case s.To:
		return true
	case s.From:
		return false
	}
	return s.narrows()
}

// Diff returns the steps from the present values to the wanted ones. Their
// order never lets a child exceed its parent. Steps that narrow come first,
// deepest cgroup first. Steps that widen follow, highest cgroup first. A cgroup
// is marked only after its parent. Steps that narrow BE come before all others.
//
// Cgroup v1 needs two more rules. If a cgroup exchanges some CPUs for other
// CPUs of its parent, the step counts as one that narrows. If a quota narrows
// to a value above the present quota of an ancestor, its step comes after the
// step that widens the ancestor.
//
// There is no step if the kernel would round both values to the same value. The
// caller must not pass two wants for one knob; if it does, Diff uses the first.
func Diff(have node.Knobs, wants []Want) []Step {
	steps := firstOf(wants, differences(have, wants))
	late, early := knobsAfterParent(have, steps), knobsBeforeParent(have, steps)
	slices.SortStableFunc(steps, func(a, b Step) int { return compareSteps(a, b, late, early) })
	return steps
}

// A difference is a step with the index of its want.
type difference struct {
	Step
	at int
}

// differences returns a step for each want that needs one.
func differences(have node.Knobs, wants []Want) []difference {
	var all []difference
	for i := range wants {
		w := &wants[i]
		s := Step{Knob: w.Knob, Owner: w.Owner, Reason: w.Reason, BE: w.BE}
		switch w.Intent {
		case Set:
			s.From, s.To = have.Now[w.Knob], roundValue(w.Value, have.Kernel)
			if s.From != nil && s.From == s.To {
				continue
			}
		case Release:
			before, touched := have.Before[w.Knob]
			if !touched {
				continue
			}
			// A release needs a step even if the knob has its old value
			// already, because the journal must forget the knob.
			s.From, s.To, s.Release = have.Now[w.Knob], before, true
		default:
			continue
		}
		all = append(all, difference{s, i})
	}
	return all
}

// roundValue returns v.Round(k), but allocates nothing for three frequent types
// that the kernel does not round.
func roundValue(v node.Value, k node.Kernel) node.Value {
	switch v.(type) {
	case node.CPUs, node.Run, node.SchedulerGroup:
		return v
	}
	return v.Round(k)
}

// firstOf returns the steps whose wants are the first for their knob. In most
// ticks there is no step, and firstOf does not look at the wants.
func firstOf(wants []Want, all []difference) []Step {
	if len(all) == 0 {
		return nil
	}
	steps := make([]Step, 0, len(all))
	seen := make(map[node.Knob]bool, len(wants))
	for i := range wants {
		if len(all) > 0 && all[0].at == i {
			if !seen[wants[i].Knob] {
				steps = append(steps, all[0].Step)
			}
			all = all[1:]
		}
		seen[wants[i].Knob] = true
	}
	return steps
}

// knobsBeforeParent returns the knobs whose sets exchange CPUs or memory nodes: the
// new set lacks an old CPU, and has a new CPU that the parent has already. On cgroup
// v1, the step of such a knob comes before the step that narrows the parent,
// because the parent must always contain the child.
func knobsBeforeParent(have node.Knobs, steps []Step) map[node.Knob]bool {
	if have.Kernel.CgroupVersion != 1 {
		return nil
	}
	early := map[node.Knob]bool{}
	for _, s := range steps {
		to, is := s.To.(node.CPUs)
		from, _ := s.From.(node.CPUs)
		up, _ := have.Now[node.Knob{Cgroup: s.Knob.Cgroup.Parent(), File: s.Knob.File}].(node.CPUs)
		if is && !to.Set.Contains(from.Set) && !from.Set.Contains(to.Set) && up.Set.Contains(to.Set) {
			early[s.Knob] = true
		}
	}
	return early
}

// knobsAfterParent returns the knobs whose quota narrows to a value that an
// ancestor does not have yet, because a step of the same plan widens the
// ancestor. Before that step, cgroup v1 refuses such a quota.
func knobsAfterParent(have node.Knobs, steps []Step) map[node.Knob]bool {
	if have.Kernel.CgroupVersion != 1 {
		return nil
	}
	widen := map[node.Knob]bool{}
	for _, s := range steps {
		widen[s.Knob] = s.Knob.File == node.FileCPUMax && !s.narrows()
	}
	late := map[node.Knob]bool{}
	for _, s := range steps {
		if s.Knob.File != node.FileCPUMax || !s.narrows() {
			continue
		}
		for up := s.Knob; up.Cgroup != ""; {
			up.Cgroup = up.Cgroup.Parent()
			if v, known := have.Now[up]; known && widen[up] && v.CompareWidth(s.To) < 0 {
				late[s.Knob] = true
			}
		}
	}
	return late
}

func compareSteps(a, b Step, late, early map[node.Knob]bool) int {
	narrows := func(s Step) bool { return (s.narrows() || early[s.Knob]) && !late[s.Knob] }
	upward := func(s Step) bool { return (s.childFirst() || early[s.Knob]) && !late[s.Knob] }
	if narrows(a) != narrows(b) {
		if narrows(a) {
			return -1
		}
		return 1
	}
	if narrows(a) {
		if a.BE != b.BE {
			if a.BE {
				return -1
			}
			return 1
		}
	}
	if upward(a) != upward(b) {
		if upward(a) {
			return -1
		}
		return 1
	}
	depth := cmp.Compare(a.Knob.Cgroup.Depth(), b.Knob.Cgroup.Depth())
	if upward(a) {
		depth = -depth
	}
	return cmp.Or(depth, a.Knob.Compare(b.Knob))
}

// Bound returns the first n steps, and those later steps that narrow BE. n ≤ 0
// means no bound. The next Diff returns the dropped steps again, because the
// knobs still differ.
func Bound(steps []Step, n int) []Step {
	if n <= 0 || len(steps) <= n {
		return steps
	}
	kept := make([]Step, 0, n)
	for _, s := range steps {
		if len(kept) < n || (s.BE && s.narrows()) {
			kept = append(kept, s)
		}
	}
	return kept
}
