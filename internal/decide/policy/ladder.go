package policy

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// ladder chooses the rung that keeps best-effort work out of the way of
// latency-sensitive work on the CPU: one at a time, the strongest that the node
// can carry, from where the owner says that the ladder begins. Below every rung
// cpuQOS keeps best-effort work idle, so a rung that fails leaves that.
type ladder struct {
	// Status is the choice, and the falls of the last hour that led to it.
	Status node.LadderStatus `json:"status,omitzero"`
	// LS is where latency-sensitive work ran lately; kept on RungSiblings only.
	LS sightings `json:"ls,omitzero"`
}

// Ladder says of each rung whether a node with these capabilities can carry it,
// and which one would be chosen there at a first look.
func Ladder(c CPUQOS, can node.Capabilities, i node.Isolation) node.LadderStatus {
	return ladder{}.choose(c, node.Snapshot{Can: can, Isolation: i}).Status
}

// choose takes the first rung, from where the ladder begins, that the node can
// carry and that is not waiting after a fall.
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

// because says why a rung was chosen, and what became of those before it.
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

// climb chooses a rung and returns what it wants of the knobs of isolation.
// The CPUs that best-effort work avoids on RungSiblings are in the first result.
func (st ladder) climb(c CPUQOS, l facts.Layout, s node.Snapshot) (ladder, []plan.Want) {
	if !c.Enable {
		return ladder{}, giveBack(nil, l, s, "CPU QoS is off")
	}
	next := st.choose(c, s)
	if next.Status.Rung != node.RungSiblings {
		next.LS = sightings{}
	} else if next.LS = st.LS.observe(s); next.LS.blind() {
		next.Status.Falls = append(next.Status.Falls, node.Fall{
			At: s.At, Rung: node.RungSiblings, Why: "nobody counts where latency-sensitive work runs", Refused: true,
		})
	}
	return next, next.wants(c, l, s)
}
