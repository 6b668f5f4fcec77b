package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// readIsolation applies the scenario lines about isolation:
//
//	can MECHANISM …             the kernel supports these mechanisms
//	cannot MECHANISM WHY        the kernel does not support it;  unsure MECHANISM WHY: this is unknown
//	falls MECHANISM WHY         the mechanism failed in use;  refused MECHANISM WHY: the kernel refused it
//	foreign NAME                another component has loaded a scheduler; -: none
//	cookies N                   processes with cookies of another component
//	ask MECHANISM               the request of an operator; auto: as configured
//	sees                        run time of LS on each CPU (web=1500m@0-3) is counted
//
// "---- mechanisms" prints the mechanism in use, and the state of the mechanisms
// that the scenario is about: see isAbout. The line can name more of them.
func (n *scene) readIsolation(t *testing.T, verb, rest string) {
	t.Helper()
	what, why, _ := strings.Cut(rest, " ")
	switch verb {
	case "can":
		for _, m := range strings.Fields(rest) {
			n.snap.Capabilities[node.Feature(m)] = node.Answer{Verdict: node.Yes, Why: "seen"}
		}
		n.showIsolation()
	case "cannot", "unsure":
		n.snap.Capabilities[node.Feature(what)] = node.Answer{Verdict: map[string]node.Verdict{"cannot": node.No, "unsure": node.Unknown}[verb], Why: why}
	case "falls", "refused":
		n.failure(node.Mechanism(what), why, verb == "refused")
	case "foreign":
		n.snap.Isolation.Foreign = strings.TrimPrefix(what, "-")
	case "cookies":
		n.snap.Isolation.Cookies = mustParse(t, word{verb, what}, number)
	case "ask":
		n.snap.Isolation.Request = node.Request{At: n.snap.At, Mechanism: node.Mechanism(strings.TrimPrefix(what, "auto"))}
	case "sees":
		n.snap.Isolation.LSOn = map[unit.CPU]time.Duration{}
	}
}

// countRunTime adds the run time of LS on each CPU to the counters, if
// there are such counters.
func (n *scene) countRunTime() {
	if n.snap.Isolation.LSOn == nil {
		return
	}
	on := map[unit.CPU]time.Duration{}
	for c := range n.snap.Topology.All().All() {
		on[c] = 0
	}
	for _, w := range n.snap.Workloads {
		for c, ran := range n.perCPU[w.ID] {
			if w.Class.Sensitive() {
				on[c] += ran
			}
		}
	}
	n.snap.Isolation.LSOn = on
}

// configureIsolation reads the words of a configuration line that are about
// isolation, such as mechanism=sched_ext hold=50µs headroom=2 identity=LS:1
// slices=kept order=measured trials=off.
func (n *scene) configureIsolation(t *testing.T, w word) bool {
	t.Helper()
	c := &n.config.CPUQOS
	switch w.key {
	case "mechanism":
		c.Mechanism = node.Mechanism(strings.TrimPrefix(w.val, "auto"))
	case "order":
		c.Measured = w.val == "measured"
	case "trials":
		c.NoTrials = w.val == "off"
	case "hold":
		c.Hold = node.Some(mustParse(t, w, time.ParseDuration))
	case "headroom":
		c.Headroom = node.Some(mustParse(t, w, number))
	case "slices":
		c.SlicesUnmanaged = w.val == "kept"
	case "identity":
		class, level, _ := strings.Cut(w.val, ":")
		if c.Identity == nil {
			c.Identity = map[node.Class]node.Identity{}
		}
		c.Identity[node.Class(class)] = node.Identity(mustParse(t, word{w.key, level}, number))
	default:
		return false
	}
	return true
}

// failure makes a mechanism fail now. If that mechanism is a scheduler, it is
// unloaded.
func (n *scene) failure(r node.Mechanism, why string, refused bool) {
	i := &n.snap.Isolation
	i.Failures = slices.DeleteFunc(slices.Clone(i.Failures), func(f node.Failure) bool { return n.snap.At.Sub(f.At) >= time.Hour })
	i.Failures = append(i.Failures, node.Failure{At: n.snap.At, Mechanism: r, Why: why, Refused: refused})
	if r == node.MechanismSchedExt {
		n.snap.Knobs.Now[node.Knob{File: node.FileScheduler}] = node.Scheduler{}
		n.forgetOrders()
	}
}

// forgetOrders removes the orders that an unloaded scheduler had.
func (n *scene) forgetOrders() {
	for k := range n.snap.Knobs.Now {
		switch k.File {
		case node.FileSchedulerGroup:
			delete(n.snap.Knobs.Now, k)
		case node.FileSchedulerCap:
			n.snap.Knobs.Now[k] = node.SchedulerCap{}
		}
	}
	n.showIsolation()
}

// showIsolation gives every cgroup the isolation knobs that the kernel has.
func (n *scene) showIsolation() {
	now, can := n.snap.Knobs.Now, n.snap.Capabilities
	show := func(k node.Knob, v node.Value, is bool) {
		if _, shown := now[k]; is && !shown {
			now[k] = v
		}
	}
	show(node.Knob{File: node.FileScheduler}, node.Scheduler{}, can.Has(node.FeatureSchedExt))
	show(node.Knob{File: node.FileSchedulerCap}, node.SchedulerCap{}, can.Has(node.FeatureSchedExt))
	for k := range now {
		if k.File != node.FileCPUWeight {
			continue
		}
		show(node.Knob{Cgroup: k.Cgroup, File: node.FileIdentity}, node.IdentityNone, can.CanMark())
		show(node.Knob{Cgroup: k.Cgroup, File: node.FileSchedulerGroup}, node.SchedulerGroup{}, can.Has(node.FeatureSchedExt))
		for _, f := range node.FilesOf(node.CategoryThreads) {
			show(node.Knob{Cgroup: k.Cgroup, File: f}, node.ThreadsNormal, can.Has(f.Needs()))
		}
	}
}

// isolationFeatures lists what the mechanisms above the floor need: of each
// mechanism the first of its own features, and what siblings need.
func isolationFeatures() []node.Feature {
	var all []node.Feature
	for _, r := range node.MechanismTable {
		if len(r.Needs) > 0 && !r.Below {
			all = append(all, r.Needs[0])
		}
	}
	return append(all, node.FeatureCPUSets, node.FeatureBPF)
}

// isAbout reports whether the scenario is about a mechanism: it is in use, it has
// failed, or a line of the scenario up to here names it or a feature that it
// needs. So a new mechanism changes only the scenarios about it.
func (n *scene) isAbout(r node.MechanismStatus) bool {
	named := n.named[string(r.Mechanism)] || slices.ContainsFunc(r.Mechanism.Row().Needs, func(f node.Feature) bool { return n.named[string(f)] })
	return named || r.Failures > 0 || r.Mechanism == n.state.Selector.Status.Mechanism
}

// selection prints the selected mechanism, and the state of the mechanisms that
// the scenario is about.
func (n *scene) selection() []string {
	v := n.state.Selector.Status
	lines := []string{fmt.Sprintf("in use: %s  # %s", v.Mechanism, v.Why)}
	for _, r := range v.Mechanisms {
		if !n.isAbout(r) {
			continue
		}
		line := fmt.Sprintf("%s %s  # %s", r.Mechanism, r.Can, r.Why)
		if r.Failures > 0 {
			line += fmt.Sprintf("; falls: %d, down: %v, again in %v", r.Failures, r.Down, r.Retry.Sub(n.snap.At))
		}
		lines = append(lines, line)
	}
	return lines
}

// isYielding reports whether a cgroup or one of its ancestors is idle or has the
// least weight.
func (n *scene) isYielding(p node.CgroupPath) bool {
	least := node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}.Round(n.snap.Knobs.Kernel)
	for ; p != ""; p = p.Parent() {
		v, _ := n.snap.Knobs.Now[node.Knob{Cgroup: p, File: node.FileCPUWeight}].(node.CPUWeight)
		if v.Idle || v == least {
			return true
		}
	}
	return false
}

// wrongSlices returns what is wrong with the long slices of a cgroup, or "" if
// nothing is.
func (n *scene) wrongSlices(p node.CgroupPath) string {
	for _, w := range n.snap.Workloads {
		if w.Class != node.BE && p.Contains(w.Cgroup) {
			return fmt.Sprintf("the %s work %s is in it", w.Class, w.ID)
		}
	}
	if r := n.state.Selector.Status.Mechanism; r == node.MechanismVendor || r == node.MechanismSchedExt || r == "" {
		return fmt.Sprintf("the mechanism is %q", r)
	}
	return ""
}

// wrongIsolation compares the present isolation knobs with the wants. It
// returns what is wrong, or "" if nothing is.
func (n *scene) wrongIsolation() string {
	now := n.snap.Knobs.Now
	var using []node.Mechanism
	for k, v := range now {
		r := node.MechanismOf(k.File)
		if k.File == node.FileSlice && v == node.Value(node.ThreadsBE) && n.fails == nil {
			if why := n.wrongSlices(k.Cgroup); why != "" {
				return fmt.Sprintf("%v is %v: %s", k, v, why)
			}
		}
		if r == "" || v == node.Value(node.IdentityNone) || v == node.Value(node.ThreadsNormal) || v == node.Value(node.Scheduler{}) {
			continue
		}
		if _, ours := n.snap.Knobs.Before[k]; !ours {
			continue
		}
		if using = append(using, r); n.fails != nil {
			continue // its release has failed
		} else if r != n.state.Selector.Status.Mechanism {
			return fmt.Sprintf("%v is %v with the mechanism %q", k, v, n.state.Selector.Status.Mechanism)
		}
		for _, w := range n.snap.Workloads {
			switch inside := k.Cgroup != "" && k.Cgroup.Contains(w.Cgroup); {
			case inside && w.Class != node.BE && (v == node.Value(node.ThreadsBE) || v == node.Value(node.IdentityBE)):
				return fmt.Sprintf("%v is %v with the %s work %s in it", k, v, w.Class, w.ID)
			case inside && w.Class == node.BE && v.CompareWidth(node.IdentityNone) > 0:
				return fmt.Sprintf("%v is %v with the best-effort work %s in it", k, v, w.ID)
			}
		}
		for _, w := range n.snap.Workloads {
			if v == node.Value(node.ThreadsBE) && k.Cgroup.Contains(w.Cgroup) && !n.isYielding(w.Cgroup) {
				return fmt.Sprintf("%v is %v, and neither %s nor a cgroup above it is idle", k, v, w.Cgroup)
			}
		}
	}
	if slices.Sort(using); len(slices.Compact(using)) > 1 {
		return fmt.Sprintf("several mechanisms are in use: %v", using)
	}
	c := n.config.CPUQOS
	if !c.Enable {
		if len(using) > 0 && n.fails == nil {
			return fmt.Sprintf("CPU QoS is off, and in use: %v", using)
		}
		return ""
	}
	if n.fails != nil {
		return ""
	}
	for _, m := range facts.LayoutOf(n.snap).IdleCgroups(n.snap) {
		idle := n.snap.Capabilities.Has(node.FeatureCPUIdle) && c.Means != node.FeatureCPUWeight && n.state.Selector.Status.Mechanism != node.MechanismWeight
		if v := now[node.Knob{Cgroup: m, File: node.FileCPUWeight}].(node.CPUWeight); idle != v.Idle {
			return fmt.Sprintf("%s has the weight %v with the mechanism %q", m, v, n.state.Selector.Status.Mechanism)
		}
	}
	return ""
}
