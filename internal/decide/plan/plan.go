// Package plan turns what policies want into the ordered writes that bring it
// about. It is where the order of writes, their bounds and the meaning of
// "already so" are decided, for the real node, the simulator and a dry run
// alike.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// An Intent says what a policy does with a knob that it owns.
type Intent string

// The intents.
const (
	// Set asks for a value.
	Set Intent = "set"
	// Release gives the knob back: it gets its value from before Tenon's
	// first touch, and is forgotten.
	Release Intent = "release"
	// Abstain leaves the knob as it is, because an input is missing.
	Abstain Intent = "abstain"
	// Hold leaves the knob as another component wrote it, for a while: Value is
	// what it gets after that (decide/contest).
	Hold Intent = "hold"
)

// A Want is the value that a policy wants for one knob, and its reason.
type Want struct {
	Intent Intent
	Knob   node.Knob
	// Value is the value asked for; nil unless Intent is Set or Hold.
	Value node.Value
	// Owner is the policy that owns the knob.
	Owner Owner
	// Reason is one short sentence; it shows in golden files, in tenon plan
	// and in the audit log.
	Reason string
	// BE marks a knob that bounds best-effort work. Narrowing such a knob is
	// what keeps the latency-sensitive side safe: it goes first, and is never
	// cut by a bound on the number of steps.
	BE bool
}

// A Step is one write: a knob, the value it has and the value it gets.
type Step struct {
	Knob   node.Knob
	From   node.Value // nil: unknown, the knob could not be read
	To     node.Value
	Owner  Owner
	Reason string
	// Release marks a step that gives the knob back: after it the journal
	// forgets the knob.
	Release bool
	// BE is as in the Want.
	BE bool
}

// String prints the step as a line of a scenario:
// "be cpu.max max 100000 -> 35000 100000  # reason".
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

// narrows reports whether s allows less after than before.
func (s Step) narrows() bool { return s.From != nil && s.To.Narrower(s.From) < 0 }

// upward reports whether a step on a child comes before that on its parent: what
// narrows does, and a mark of identity that is taken away. A mark that is given
// does not, also where it narrows: below a parent without one it says nothing.
func (s Step) upward() bool {
	switch node.Value(node.IdentityNone) {
	case s.To:
		return true
	case s.From:
		return false
	}
	return s.narrows()
}

// Diff returns the steps that lead from have to the wanted values, in an order
// in which no child ever exceeds its parent: steps that narrow come first,
// deepest cgroup first; steps that widen follow, highest cgroup first; and no
// cgroup is marked before the marked cgroup below which it lies. Steps that
// narrow best-effort work come before all others. On cgroup v1 a quota that
// narrows to more than a cgroup above it has comes after the step that widens
// that one. If the kernel would round both values to the same, there is no
// step. Two wants for the same knob are a fault of the caller: Diff keeps the
// first.
func Diff(have node.Knobs, wants []Want) []Step {
	var steps []Step
	seen := make(map[node.Knob]bool, len(wants))
	for _, w := range wants {
		if seen[w.Knob] {
			continue
		}
		seen[w.Knob] = true
		s := Step{Knob: w.Knob, From: have.Now[w.Knob], Owner: w.Owner, Reason: w.Reason, BE: w.BE}
		switch w.Intent {
		case Set:
			s.To = w.Value.Rounded(have.Kernel)
			if s.From != nil && s.From == s.To {
				continue
			}
		case Release:
			before, touched := have.Before[w.Knob]
			if !touched {
				continue
			}
			// A release is a step even when the value is already back: the
			// journal must forget the knob.
			s.To, s.Release = before, true
		default:
			continue
		}
		steps = append(steps, s)
	}
	late := afterParent(have, steps)
	slices.SortStableFunc(steps, func(a, b Step) int { return compareSteps(a, b, late) })
	return steps
}

// afterParent are the quotas that narrow to more than a cgroup above has now,
// which is to be widened: cgroup v1 refuses them until that is done.
func afterParent(have node.Knobs, steps []Step) map[node.Knob]bool {
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
			if v, known := have.Now[up]; known && widen[up] && v.Narrower(s.To) < 0 {
				late[s.Knob] = true
			}
		}
	}
	return late
}

func compareSteps(a, b Step, late map[node.Knob]bool) int {
	narrows := func(s Step) bool { return s.narrows() && !late[s.Knob] }
	upward := func(s Step) bool { return s.upward() && !late[s.Knob] }
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

// Bound cuts steps to at most n, in order, but never cuts a step that narrows
// best-effort work. n ≤ 0 means no bound. What was cut comes again with the
// next Diff, since the knobs still differ.
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
