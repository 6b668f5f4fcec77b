package isolation

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// A method holds what a mechanism needs and wants besides the features and the
// attributes of threads in its row of node.MechanismTable.
type method struct {
	// refuses returns why a node cannot use the mechanism although it may have the
	// features, or "". Without features, supports answers in its place.
	refuses  func(c Config, s node.Snapshot) string
	supports func(c Config, s node.Snapshot) node.Answer
	wants    func(c Config, s node.Snapshot) []plan.Want
}

var methods = map[node.Mechanism]method{
	node.MechanismVendor:    {supports: carriesMarks, wants: Config.identities},
	node.MechanismSchedExt:  {refuses: foreignScheduler, wants: Config.schedulers},
	node.MechanismCoreSched: {refuses: foreignCookies},
	node.MechanismSiblings:  {supports: canFollow},
	node.MechanismIdle:      {refuses: notIdle},
	node.MechanismWeight:    {supports: everywhere},
}

// supportsMechanism says whether a node supports an isolation mechanism. It
// does not consider failures.
func supportsMechanism(m node.Mechanism, c Config, s node.Snapshot) node.Answer {
	row, special := m.Row(), methods[m]
	why := ""
	if row.SiblingsOnly {
		why = noEffectReason(c, s.Capabilities)
	}
	if why == "" && special.refuses != nil {
		why = special.refuses(c, s)
	}
	switch {
	case why != "":
		return node.Answer{Verdict: node.No, Why: why}
	case special.supports != nil:
		return special.supports(c, s)
	}
	return AnswerOf(s.Capabilities, row.Needs[0])
}

func everywhere(Config, node.Snapshot) node.Answer {
	return node.Answer{Verdict: node.Yes, Why: "every kernel has weights"}
}

func foreignScheduler(_ Config, s node.Snapshot) string {
	if s.Isolation.Foreign == "" {
		return ""
	}
	return "another sched_ext scheduler is loaded: " + s.Isolation.Foreign
}

func foreignCookies(_ Config, s node.Snapshot) string {
	if n := s.Isolation.Cookies; n > 0 {
		return OthersHave(n)
	}
	if p, marked := marked(s); marked {
		return fmt.Sprintf("another component marks %s, and a vendor's kernel can hang if core scheduling is on too", p)
	}
	return ""
}

// canFollow returns whether the cpusets of BE can follow the CPUs of LS.
func canFollow(c Config, s node.Snapshot) node.Answer {
	if c.CPUSetsManagedExternally {
		return node.Answer{Verdict: node.No, Why: "another component manages the cpusets here"}
	}
	if sets := AnswerOf(s.Capabilities, node.FeatureCPUSets); sets.Verdict != node.Yes || s.Isolation.LSOn != nil {
		return sets
	}
	return AnswerOf(s.Capabilities, node.FeatureBPF) // BPF counts the run time of LS on each CPU
}

func notIdle(c Config, _ node.Snapshot) string {
	if c.Means == node.FeatureCPUWeight {
		return "schedIdle is 0"
	}
	return ""
}

// carriesMarks returns whether the kernel has a vendor mark.
func carriesMarks(c Config, s node.Snapshot) node.Answer {
	if v := c.identity(node.BE); v >= node.IdentityNone {
		return node.Answer{Verdict: node.No, Why: fmt.Sprintf("groupIdentity of beClass is %v: BE would not give way", v)}
	}
	best := node.Answer{Verdict: node.No, Why: "this kernel has none of " + MarkNames()}
	for _, m := range node.VendorMarks {
		switch a := s.Capabilities[m.Can]; {
		case a.Verdict == node.Yes && s.Isolation.Cookies > 0:
			return node.Answer{Verdict: node.No, Why: OthersHave(s.Isolation.Cookies) +
				", and this kernel can hang with cookies and marks together"}
		case a.Verdict == node.Yes:
			return a
		case a.Verdict == node.Unknown && best.Verdict == node.No:
			best = a
		}
	}
	return best
}

// noEffectReason returns the reason why a mechanism that protects only siblings
// would have no effect here, or "" if it would have one.
func noEffectReason(c Config, can node.Capabilities) string {
	switch smt := AnswerOf(can, node.FeatureHardwareSMT); {
	case smt.Verdict == node.No:
		return "no CPU has a sibling"
	case smt.Verdict == node.Unknown:
		return "whether CPUs have siblings is unknown: " + smt.Why
	case !c.expels():
		return "no class keeps BE off its siblings"
	}
	return ""
}

// marked returns a cgroup that another component marked as BE for a vendor's kernel.
func marked(s node.Snapshot) (first node.CgroupPath, found bool) {
	if !s.Capabilities.CanMark() {
		return "", false
	}
	for knob := range s.Knobs.Now {
		if knob.File != node.FileIdentity {
			continue
		}
		if v, is := facts.Original(s.Knobs, knob).(node.Identity); is && v < node.IdentityNone && (!found || knob.Cgroup < first) {
			first, found = knob.Cgroup, true
		}
	}
	return first, found
}

// ClearsSiblings reports whether the selected mechanism keeps BE off the
// siblings of all CPUs that run work of LS classes.
func (st Selector) ClearsSiblings(c Config, s node.Snapshot) bool {
	switch st.Status.Mechanism.Row().Expels {
	case node.ExpelsAll:
		return true
	case node.ExpelsByClass:
		return c.expels() && !facts.AnyOf(s.Workloads, func(w *node.Workload) bool {
			return w.Class.Sensitive() && w.Overrides.Identity.Or(c.identity(w.Class)) < node.IdentityExpels
		})
	}
	return false
}
