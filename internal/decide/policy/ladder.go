package policy

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// ladder selects the isolation mechanism between best-effort and
// latency-sensitive work on the CPU: one at a time, the strongest that the node
// supports, beginning where the owner says. Below each mechanism cpuQOS keeps
// best-effort work idle, so that remains if the mechanism fails.
type ladder struct {
	// Status is the selection, and the mechanism failures of the last hour.
	Status node.LadderStatus `json:"status,omitzero"`
	// LS is the CPUs on which latency-sensitive work ran lately; only on
	// RungSiblings.
	LS sightings `json:"ls,omitzero"`
}

// Ladder returns for each isolation mechanism whether a node with these
// capabilities supports it, and which one would be selected first.
func Ladder(c CPUQOS, can node.Capabilities, i node.Isolation) node.LadderStatus {
	return ladder{}.choose(c, node.Snapshot{Can: can, Isolation: i}).Status
}

// choose selects the first mechanism of the preference order that the node
// supports and that does not wait after a failure.
func (st ladder) choose(c CPUQOS, s node.Snapshot) ladder {
	now := st.Status
	next := node.LadderStatus{
		Pinned: c.Rung, Falls: fallsOf(now.Falls, s.Isolation.Falls, s.At), Rungs: make([]node.RungStatus, len(node.Rungs)),
	}
	if asked := s.Isolation.Asked; asked.Rung != "" {
		next.Pinned, next.ByHand = asked.Rung, true
	}
	begin, chosen := max(slices.Index(node.Rungs, next.Pinned), 0), -1
	for i, r := range node.Rungs {
		answer := carries(r, c, s)
		v := node.RungStatus{Rung: r, Can: answer.Verdict, Why: answer.Why}
		v.Falls, v.Down, v.Retry = waitsFor(r, next.Falls, s.Isolation.Asked.At)
		if next.Rungs[i] = v; chosen < 0 && i >= begin && v.Can == node.Yes && !s.At.Before(v.Retry) {
			chosen = i
		}
	}
	if chosen < 0 {
		chosen = len(node.Rungs) - 1 // every kernel has weights
	}
	next.Rung, next.Since = node.Rungs[chosen], s.At
	if next.Rung == now.Rung {
		next.Since = now.Since
	}
	next.Why = because(next, begin, chosen, s.At)
	return ladder{Status: next, LS: st.LS}
}

// because returns why a mechanism was selected, and why not those before it.
func because(v node.LadderStatus, begin, chosen int, at time.Time) string {
	text := "the strongest that this node can carry"
	switch first := v.Rungs[begin]; {
	case v.Pinned == "":
	case first.Can != node.Yes:
		text = fmt.Sprintf("%s is asked for and cannot be: %s", v.Pinned, first.Why)
	case v.ByHand:
		text = "an operator asked for " + string(v.Pinned)
	default:
		text = "the configuration asks for " + string(v.Pinned)
	}
	for _, r := range v.Rungs[begin:chosen] {
		if r.Can != node.Yes || !at.Before(r.Retry) {
			continue
		}
		last := v.Falls[lastOf(v.Falls, r.Rung)]
		wait := r.Retry.Sub(at).Round(time.Second)
		if r.Down {
			text += fmt.Sprintf("; %s fell %d times in an hour, at last: %s: it stays down for %v", r.Rung, r.Falls, last.Why, wait)
		} else {
			text += fmt.Sprintf("; %s fell: %s: tried again in %v", r.Rung, last.Why, wait)
		}
	}
	return text
}

// climb selects a mechanism and returns its wants. The first result holds the
// CPUs that best-effort work avoids on RungSiblings.
func (st ladder) climb(c CPUQOS, l facts.Layout, s node.Snapshot) (ladder, []plan.Want) {
	if !c.Enable {
		return ladder{}, giveBack(nil, l, s, "CPU QoS is off")
	}
	next := st.choose(c, s)
	if next.Status.Rung != node.RungSiblings {
		next.LS = sightings{}
	} else if next.LS = st.LS.observe(s); next.LS.blind() {
		next.Status.Falls = append(next.Status.Falls, node.Fall{
			At: s.At, Rung: node.RungSiblings, Why: "the CPUs of latency-sensitive work are not counted", Refused: true,
		})
	}
	return next, next.wants(c, l, s)
}
