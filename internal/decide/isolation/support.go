package isolation

import (
	"fmt"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
)

// supportsMechanism says whether a node supports an isolation mechanism. It
// does not consider failures.
func supportsMechanism(r node.Mechanism, c Config, s node.Snapshot) node.Answer {
	no := func(format string, a ...any) node.Answer {
		return node.Answer{Verdict: node.No, Why: fmt.Sprintf(format, a...)}
	}
	switch r {
	case node.MechanismVendor:
		return carriesMarks(c, s)
	case node.MechanismSchedExt:
		if s.Isolation.Foreign != "" {
			return no("another sched_ext scheduler is loaded: %s", s.Isolation.Foreign)
		}
		return AnswerOf(s.Capabilities, node.FeatureSchedExt)
	case node.MechanismCoreSched:
		if why := noEffectReason(c, s.Capabilities); why != "" {
			return no("%s", why)
		}
		if n := s.Isolation.Cookies; n > 0 {
			return no("%s", OthersHave(n))
		}
		if p, marked := marked(s); marked {
			return no("another component marks %s, and a vendor's kernel can hang if core scheduling is on too", p)
		}
		return AnswerOf(s.Capabilities, node.FeatureCoreSched)
	case node.MechanismSiblings:
		if why := noEffectReason(c, s.Capabilities); why != "" {
			return no("%s", why)
		}
		if c.CPUSetsManagedExternally {
			return no("another component manages the cpusets here")
		}
		if sets := AnswerOf(s.Capabilities, node.FeatureCPUSets); sets.Verdict != node.Yes || s.Isolation.LSOn != nil {
			return sets
		}
		return AnswerOf(s.Capabilities, node.FeatureBPF) // BPF counts the run time of LS on each CPU
	case node.MechanismIdle:
		if c.Means == node.FeatureCPUWeight {
			return no("schedIdle is 0")
		}
		return AnswerOf(s.Capabilities, node.FeatureCPUIdle)
	}
	return node.Answer{Verdict: node.Yes, Why: "every kernel has weights"}
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
// siblings of all CPUs that run work of LS classes. MechanismSiblings does not
// count: it follows LS once a tick, and BE keeps its minimum even beside LS.
func (st Selector) ClearsSiblings(c Config, s node.Snapshot) bool {
	switch st.Status.Mechanism {
	case node.MechanismCoreSched:
		return true
	case node.MechanismVendor, node.MechanismSchedExt:
		return c.expels() && !facts.AnyOf(s.Workloads, func(w *node.Workload) bool {
			return w.Class.Sensitive() && w.Overrides.Identity.Or(c.identity(w.Class)) < node.IdentityExpels
		})
	}
	return false
}
