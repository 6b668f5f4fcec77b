package isolation

import (
	"fmt"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/trials/switchback"
	"tenon.sh/tenon/internal/model/node"
)

// A Selector selects the isolation mechanism that keeps BE off the CPU of LS, one at a time. If
// the configuration leaves the choice to trials (measured.go), it uses the mechanism that helped on
// this node. Otherwise it uses the strongest mechanism that the node supports, beginning with the
// configured one. With each mechanism stronger than the weight, WeightWants also makes BE idle, so
// that BE still gives way if the mechanism fails.
type Selector struct {
	// Status is the selection. It also holds the failures of mechanisms in the last hour.
	Status node.Selection `json:"status,omitzero"`
	// LS holds the CPUs on which LS work ran a short time ago. Only a mechanism that follows LS uses it.
	LS Sightings `json:"ls,omitzero"`
	// Trials find out which mechanism helps on this node.
	Trials switchback.State `json:"trials,omitzero"`
}

// Mechanisms returns which isolation mechanisms a node with these capabilities
// supports, and which one it selects first.
func Mechanisms(c Config, can node.Capabilities, i node.Isolation) node.Selection {
	return Selector{}.choose(c, node.Snapshot{Capabilities: can, Isolation: i}, nil).Status
}

// choose selects the mechanism. In the measured order, the trials decide. Otherwise choose
// selects the first mechanism in the preference order that the node supports and that does not
// wait for its next attempt after a failure. If t is nil, choose runs no trials.
func (st Selector) choose(c Config, s node.Snapshot, t *Input) Selector {
	now := st.Status
	next := node.Selection{
		Pinned: c.Mechanism, Failures: FailuresOf(now.Failures, s.Isolation.Failures, s.At), Mechanisms: make([]node.MechanismStatus, len(node.Mechanisms)),
	}
	if asked := s.Isolation.Request; asked.Mechanism != "" {
		next.Pinned, next.ByHand = asked.Mechanism, true
	}
	begin, chosen, why := max(slices.Index(node.Mechanisms, next.Pinned), 0), -1, ""
	for i, r := range node.Mechanisms {
		answer := supportsMechanism(r, c, s)
		v := node.MechanismStatus{Mechanism: r, Can: answer.Verdict, Why: answer.Why}
		v.Failures, v.Down, v.Retry = RetryOf(r, next.Failures, s.Isolation.Request.At)
		if next.Mechanisms[i] = v; chosen < 0 && i >= begin && v.Can == node.Yes && !s.At.Before(v.Retry) {
			chosen = i
		}
	}
	if chosen < 0 {
		chosen = len(node.Mechanisms) - 1 // every kernel has weights
	}
	status := func(m node.Mechanism) node.MechanismStatus { return next.Mechanisms[slices.Index(node.Mechanisms, m)] }
	offered := func(m node.Mechanism) bool { return status(m).Can == node.Yes }
	usable := func(m node.Mechanism) bool { return offered(m) && !s.At.Before(status(m).Retry) }
	trials := st.Trials
	if t != nil {
		next.Mechanism = now.Mechanism
		trials = st.advanceTrials(c, next, offered, usable, t)
	}
	if c.Measured && next.Pinned == "" {
		chosen, why = selectMeasured(c, trials, usable)
	}
	next.Mechanism, next.Since = node.Mechanisms[chosen], s.At
	if next.Mechanism == now.Mechanism {
		next.Since = now.Since
	}
	if next.Why = why; why == "" {
		next.Why = explainChoice(next, begin, chosen, s.At)
	}
	return Selector{Status: next, LS: st.LS, Trials: trials}
}

// explainChoice returns why a mechanism was selected, and why the mechanisms
// before it in the preference order were not.
func explainChoice(v node.Selection, begin, chosen int, at time.Time) string {
	text := "the strongest that this node supports"
	switch first := v.Mechanisms[begin]; {
	case v.Pinned == "":
	case first.Can != node.Yes:
		text = fmt.Sprintf("%s was requested but is not supported: %s", v.Pinned, first.Why)
	case v.ByHand:
		text = "an operator requested " + string(v.Pinned)
	default:
		text = "the configuration requests " + string(v.Pinned)
	}
	for _, r := range v.Mechanisms[begin:chosen] {
		if r.Can != node.Yes || !at.Before(r.Retry) {
			continue
		}
		last := v.Failures[LastOf(v.Failures, r.Mechanism)]
		wait := r.Retry.Sub(at).Round(time.Second)
		if r.Down {
			text += fmt.Sprintf("; %s failed %d times in an hour, last: %s: not tried for %v", r.Mechanism, r.Failures, last.Why, wait)
		} else {
			text += fmt.Sprintf("; %s failed: %s: tried again in %v", r.Mechanism, last.Why, wait)
		}
	}
	return text
}

// Select selects a mechanism and returns its wants. The returned selector also
// holds the CPUs that BE work avoids if the mechanism follows LS.
func (st Selector) Select(c Config, t Input) (Selector, []plan.Want) {
	l, s := t.Layout, t.Snapshot
	if !c.Enable {
		return Selector{}, giveBack(nil, l, s, "CPU QoS is off")
	}
	next := st.choose(c, s, &t)
	if !next.Status.Mechanism.Row().FollowsLS {
		next.LS = Sightings{}
	} else if next.LS = st.LS.Observe(s); next.LS.Blinded() {
		next.Status.Failures = append(next.Status.Failures, node.Failure{
			At: s.At, Mechanism: next.Status.Mechanism, Why: "the run time of LS on each CPU is not counted", Refused: true,
		})
	}
	return next, next.wants(c, l, s)
}
