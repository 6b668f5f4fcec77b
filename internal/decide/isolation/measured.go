package isolation

import (
	"cmp"
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/trials/switchback"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// In the measured order, BE work has the least weight and long slices: this is the floor. Services
// then wait no longer than with the defaults of the kernel and of Kubernetes. Tenon uses any other
// mechanism only after a trial on this node has shown that services wait less with it. The marks of
// a vendor's kernel need no trial: only these marks do what the setting groupIdentity asks for.

// base returns the mechanism that the measured order uses without a trial.
func (c Config) base() node.Mechanism {
	if c.Means == node.FeatureCPUIdle {
		return node.MechanismIdle // schedIdle is 1
	}
	return node.MechanismWeight
}

// selectMeasured selects a mechanism in the measured order. It returns the index
// of the mechanism in node.Mechanisms, and the reason.
func selectMeasured(c Config, trials switchback.State, usable func(node.Mechanism) bool) (int, string) {
	at := func(m node.Mechanism) int { return slices.Index(node.Mechanisms, m) }
	use := trials.Use()
	base := c.base()
	if !usable(base) {
		base = node.MechanismWeight
	}
	switch {
	case usable(node.MechanismVendor):
		return at(node.MechanismVendor), "this kernel does what groupIdentity asks for"
	case use != "" && use != trials.Kept && usable(use):
		return at(use), "a trial compares it with what is in use otherwise"
	case use != "" && usable(use):
		return at(use), "a trial on this node kept it, because services wait less"
	case use != "":
		return at(base), fmt.Sprintf("%s cannot be used now", use)
	case base == node.MechanismIdle:
		return at(base), "schedIdle is 1"
	}
	return at(base), "the floor; others must show in a trial that services wait less"
}

// noTrialReason returns the reason why no trial may begin, or "".
func noTrialReason(c Config, next node.Selection) string {
	switch {
	case next.ByHand:
		return fmt.Sprintf("an operator requested %s", next.Pinned)
	case next.Pinned != "":
		return fmt.Sprintf("the configuration requests %s", next.Pinned)
	case !c.Measured:
		return "cpuIsolation is strongest"
	case c.NoTrials:
		return "cpuIsolationTrials is false"
	case next.Mechanism == node.MechanismVendor:
		return "this kernel does what groupIdentity asks for"
	}
	return ""
}

// advanceTrials advances the trials by one tick. The argument next still has
// the mechanism of the last tick. The function offered says what the node
// supports, and usable, which of that does not wait after a failure.
func (st Selector) advanceTrials(c Config, next node.Selection, offered, usable func(node.Mechanism) bool, t *Input) switchback.State {
	in := switchback.Input{At: t.Snapshot.At, Off: noTrialReason(c, next)}
	if in.Off != "" {
		return st.Trials.Follow(in)
	}
	in.Candidates = t.candidateList(c, offered)
	in.Failed = slices.DeleteFunc(slices.Clone(in.Candidates), usable)
	if kept := st.Trials.Kept; kept != "" {
		if !offered(kept) {
			in.Lost = cmp.Or(next.Mechanisms[slices.Index(node.Mechanisms, kept)].Why, "it is not supported")
		}
		in.Down = !usable(kept)
	}
	if base := c.base(); base != node.MechanismWeight {
		in.Base = base
	}
	in.CPUs, in.Places = switchback.CPUsOf(t.Snapshot, t.NodeCPUs.ReservedCPUs), switchback.PlacesOf(t.Snapshot, t.homeOf)
	in.Workloads, in.Passing, in.BE = switchback.CountsOf(t.Snapshot), switchback.PassingOf(t.Snapshot), switchback.BERuns(t.Snapshot, t.Use)
	if missed := t.SLO.Unexplained(); len(missed) > 0 {
		in.Missed = missed[0].Text()
	}
	in.InForce = len(st.Trials.Trial.Candidate) == 0 || Selector{Status: next, LS: st.LS}.isInForce(c, t.Layout, t.Snapshot)
	return st.Trials.Follow(in)
}

// isInForce reports whether every knob of the mechanism has its wanted value.
func (st Selector) isInForce(c Config, l facts.Layout, s node.Snapshot) bool {
	wants := append(st.wants(c, l, s), WeightWants(c, st.Status.Mechanism, l, s)...)
	return !slices.ContainsFunc(wants, func(w plan.Want) bool { return w.Intent == plan.Abstain }) && len(plan.Diff(s.Knobs, wants)) == 0
}

// candidateList lists the mechanisms that may help here, the simplest first.
func (t *Input) candidateList(c Config, offered func(node.Mechanism) bool) []node.Mechanism {
	var all []node.Mechanism
	for _, m := range slices.Backward(node.Mechanisms) {
		other := m != node.MechanismVendor && m != node.MechanismWeight && m != c.base() && offered(m)
		if other && (m != node.MechanismIdle || t.places() || switchback.Weak(t.Snapshot, t.Layout)) {
			all = append(all, m)
		}
	}
	return all
}

// An Input is the input of the selection in one tick.
type Input struct {
	NodeCPUs facts.NodeCPUs
	Layout   facts.Layout
	Use      facts.Use
	SLO      slo.Tracker
	Own      hold.Grants
	Snapshot node.Snapshot
}

// cpusOf returns the CPUs that a service may use.
func (t *Input) cpusOf(w *node.Workload) unit.CPUSet {
	all := t.Snapshot.Topology.All()
	set, bound := t.Own.Set(w.ID)
	if !bound {
		if set, bound = hold.BoundTo(t.Snapshot.Knobs, w, all); !bound {
			return all
		}
	}
	return set
}

// homeOf returns the CPUs of a service, without those that its pool has only
// while its load is high.
func (t *Input) homeOf(w *node.Workload) unit.CPUSet {
	if set, bound := t.Own.Home(w.ID); bound {
		return set
	}
	return t.cpusOf(w)
}

// places reports whether cpu.idle can help to place waking threads of services.
func (t *Input) places() bool {
	free := hold.PlacesOf(t.NodeCPUs, t.Use, t.Snapshot, t.Snapshot.Topology.All(), t.Own.Held).Free
	be := unit.CPUSet{}
	for _, m := range t.Layout.Roots {
		be = be.Union(facts.RoomOf(t.Snapshot.Knobs, m, free))
	}
	return switchback.Places(t.Snapshot, be, t.cpusOf)
}
