package record

import (
	"slices"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// changedWants returns how the wants have changed since the previous tick. In
// most ticks, the wants are for the same knobs in the same order; then
// changedWants needs no map.
func (e *encoder) changedWants(wants []plan.Want) []wantLine {
	last := e.last.Wants
	if e.distinct && sameKnobs(last, wants) {
		return movesOf(last, wants)
	}
	now := firstByKnob(wants)
	e.distinct = len(now) == len(wants)
	return wantChanges(firstByKnob(last), now)
}

// sameKnobs reports whether two lists of wants are for the same knobs in the
// same order.
func sameKnobs(a, b []plan.Want) bool {
	same := len(a) == len(b)
	for i := 0; same && i < len(a); i++ {
		same = a[i].Knob == b[i].Knob
	}
	return same
}

// firstByKnob returns the first want for each knob, because plan.Diff uses the
// first. The order of wants for different knobs has no meaning.
func firstByKnob(wants []plan.Want) map[node.Knob]plan.Want {
	first := make(map[node.Knob]plan.Want, len(wants))
	for _, w := range wants {
		if _, had := first[w.Knob]; !had {
			first[w.Knob] = w
		}
	}
	return first
}

// A move is a common change of several wants, which were equal in the previous
// line except for their cgroups.
type move struct {
	to    plan.Want // the new want, without its cgroup
	alike bool      // the new wants are equal again, except for their cgroups
	line  int       // number of the line for the first of them; 0: none yet
}

// movesOf returns the changes between two lists of wants for the same knobs in
// the same order. If equal wants change in the same way, one line describes all
// of them. This is frequent: the reason of a bound contains the load of the
// node, so it changes in most ticks, and for all best-effort cgroups at once.
func movesOf(last, now []plan.Want) []wantLine {
	moves := map[plan.Want]move{}
	// lengths marks the lengths, modulo len(lengths), of the reasons in the map
	// moves. A want is not in the map if the length of its reason is unmarked.
	// This saves most look-ups in the map, which would cost more than everything
	// else here.
	var lengths [256]bool
	for i := range now {
		if now[i] == last[i] {
			continue
		}
		from, to := dropCgroup(last[i]), dropCgroup(now[i])
		before, had := moves[from]
		moves[from] = move{to: to, alike: !had || before.alike && before.to == to}
		lengths[len(from.Reason)%len(lengths)] = true
	}
	if len(moves) == 0 {
		return nil
	}
	for i := range now {
		if !lengths[len(last[i].Reason)%len(lengths)] || now[i] != last[i] {
			continue
		}
		if m, had := moves[dropCgroup(last[i])]; had {
			m.alike = false
			moves[dropCgroup(last[i])] = m
		}
	}
	var changes []wantLine
	for i := range now {
		if now[i] == last[i] {
			continue
		}
		from := dropCgroup(last[i])
		if m := moves[from]; m.alike && m.line > 0 {
			changes[m.line-1].Alike = true
		} else {
			changes = append(changes, lineOfWant(now[i]))
			m.line = len(changes)
			moves[from] = m
		}
	}
	slices.SortFunc(changes, compareWants)
	return changes
}

// dropCgroup returns a want without its cgroup. If the intent of the want needs
// no value, it also drops the value.
func dropCgroup(w plan.Want) plan.Want {
	w.Knob.Cgroup = ""
	if !hasValue(w.Intent) {
		w.Value = nil
	}
	return w
}

func wantChanges(last, now map[node.Knob]plan.Want) []wantLine {
	var changes []wantLine
	for k, w := range now {
		if old, had := last[k]; !had || old != w {
			changes = append(changes, lineOfWant(w))
		}
	}
	for k := range last {
		if _, still := now[k]; !still {
			changes = append(changes, wantLine{Knob: k, Gone: true})
		}
	}
	slices.SortFunc(changes, compareWants)
	return changes
}

func compareWants(a, b wantLine) int { return a.Knob.Compare(b.Knob) }
