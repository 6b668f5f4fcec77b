package nodereport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/burst"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/decide/verdict"
	"tenon.sh/tenon/internal/decide/writeconflict"
	"tenon.sh/tenon/internal/model/node"
)

// These are types of conditions of the node. Each enabled feature has a type of its own.
const (
	ConfigAccepted = v1alpha1.ConfigAccepted
	PodsKnown      = "PodsKnown"
	Suppressing    = "Suppressing"
	KnobsWritten   = "KnobsWritten"
	AgentHealthy   = "AgentHealthy"
)

// A feature is a part of the configuration that a user can enable.
type feature struct {
	name string // name in the configuration
	cond string // type of its condition
	// asked reports whether a configuration enables the feature. find returns the
	// mechanisms that this node uses for the feature (by), and the reason if the
	// feature is not available or not complete (why).
	asked func(policy.Config) bool
	find  func(View) (by, why string)
}

var features = []feature{
	{"cpuQOS", "CPUQOS", func(c policy.Config) bool { return c.CPUQOS.Enable }, func(v View) (string, string) {
		return string(v.Tick.Selection.Mechanism), v.Tick.Selection.Why
	}},
	{"cpuSuppress", "CPUSuppress", func(c policy.Config) bool { return c.Suppress.Enable }, suppressedBy},
	{"cpuBurst", "CPUBurst", func(c policy.Config) bool { return c.Burst.Policy != "" }, burstsBy},
	{"memoryQOS", "MemoryQOS", func(c policy.Config) bool { return len(c.Memory.Classes) > 0 }, func(v View) (string, string) {
		if v.Tick.Snapshot.Knobs.Kernel.CgroupVersion == 1 {
			return "", "cgroup v1 has no memory.min, low and high"
		}
		return available(v, "memory.min, memory.low, memory.high", node.FeatureMemoryProtect)
	}},
	{"resctrl", "Resctrl", func(c policy.Config) bool { return len(c.Cache.Classes) > 0 }, func(v View) (string, string) {
		return splitMechanisms(v, node.FeatureResctrlL3, node.FeatureResctrlMB)
	}},
	{"blkioQOS", "BlockIO", func(c policy.Config) bool { return len(c.IO.Classes) > 0 }, func(v View) (string, string) {
		return splitMechanisms(v, node.FeatureIOMax, node.FeatureIOWeight, node.FeatureBFQWeight, node.FeatureIOLatency)
	}},
	{"eviction", "Eviction", evicts, func(v View) (string, string) {
		if !v.Tick.Snapshot.Capabilities.Has(node.FeatureCgroupFreezer) {
			return "Eviction API", "workloads that grow while memory is short are not frozen: " + v.Tick.Snapshot.Capabilities[node.FeatureCgroupFreezer].Why
		}
		return "Eviction API, " + string(node.FeatureCgroupFreezer), ""
	}},
}

func evicts(c policy.Config) bool {
	return c.Evict.Memory.ThresholdPercent > 0 || c.Evict.CPU.ThresholdPercent > 0 || c.Evict.CPU.SatisfactionLower > 0
}

// available returns the argument by if the node has the capability m. Otherwise
// it returns why the node lacks this capability.
func available(v View, by string, m node.Feature) (string, string) {
	a := v.Tick.Snapshot.Capabilities[m]
	if a.Verdict == node.Yes {
		return by, ""
	}
	return "", a.Why
}

// splitMechanisms returns the mechanisms that the node has (by), and the reason
// why it lacks the others.
func splitMechanisms(v View, all ...node.Feature) (by, why string) {
	var has, lacks []string
	for _, m := range all {
		if a := v.Tick.Snapshot.Capabilities[m]; a.Verdict == node.Yes {
			has = append(has, string(m))
		} else {
			lacks = append(lacks, fmt.Sprintf("%s: %s", m, a.Why))
		}
	}
	return list(has, len(has)), list(lacks, len(lacks))
}

func burstsBy(v View) (by, why string) {
	c := v.Policy.Burst.Policy
	var has []string
	if c != burst.Borrow {
		if a := v.Tick.Snapshot.Capabilities[node.FeatureCPUBurst]; a.Verdict == node.Yes {
			has = append(has, string(node.FeatureCPUBurst))
		} else {
			why = a.Why
		}
	}
	if c != burst.Save {
		has = append(has, "a larger quota for a time")
	}
	return list(has, len(has)), why
}

// suppressedBy returns the knobs that bound best-effort work.
func suppressedBy(v View) (by, why string) {
	b := verdict.BoundOfClass(v.Tick)
	return b.Files, cmp.Or(b.Reason, externalCPUs(v))
}

// externalCPUs returns why only a quota can bound best-effort work, or "".
func externalCPUs(v View) string {
	switch {
	case !v.Policy.NodeCPUs.CPUSetsManagedExternally:
		return ""
	case v.CPUManager == "dra":
		return "by quota alone: a DRA driver binds CPUs here"
	}
	return "by quota alone: the kubelet binds CPUs here (cpuManagerPolicy: static)"
}

// meansOf returns the mechanism of each enabled feature.
func meansOf(v View) []v1alpha1.Means {
	all := []v1alpha1.Means{{Feature: "nri", By: v.NRI.By, Why: clip(v.NRI.Why)}}
	for _, f := range features {
		if f.asked(v.Policy) {
			by, why := f.find(v)
			all = append(all, v1alpha1.Means{Feature: f.name, By: by, Why: clip(why)})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.Means) int { return compare(a.Feature, b.Feature) })
	return all
}

// The reasons of conditions.
const (
	reasonAsAsked     = "AsAsked"
	reasonPartly      = "Partly"
	reasonUnsupported = "Unsupported"
	reasonFaults      = "Faults"
	reasonNotRead     = "NotRead"
	reasonTold        = "Told"
	reasonNotTold     = "NotTold"
	reasonElsewhere   = "Elsewhere"
	reasonNothing     = "Nothing"
	reasonBounded     = "Bounded"
	reasonRefused     = "Refused"
	reasonContested   = "Contested"
	reasonTrouble     = "Trouble"
	reasonFromFile    = "FromFile"
)

const maxListed = 5

// conditionsOf returns the conditions of a report, unsorted.
func conditionsOf(v View) []metav1.Condition {
	all := []metav1.Condition{configCondition(v.Config, v.Policy), podsCondition(v.Pods), agentCondition(v.Troubles)}
	if v.Tick.Shadow != nil {
		return all // no knob is written, and no feature is in force
	}
	all = append(all, knobsCondition(v))
	if v.Policy.Suppress.Enable {
		all = append(all, suppressCondition(v))
	}
	for _, f := range features {
		if !f.asked(v.Policy) || f.cond == "CPUSuppress" { // the condition Suppressing contains this feature
			continue
		}
		by, why := f.find(v)
		switch {
		case by == "":
			all = append(all, condition(f.cond, false, reasonUnsupported, why))
		case why != "" && f.cond != "CPUQOS":
			all = append(all, condition(f.cond, true, reasonPartly, by+"; "+why))
		default:
			text := by
			if why != "" {
				text += ": " + why
			}
			all = append(all, condition(f.cond, true, reasonAsAsked, text))
		}
	}
	return all
}

func condition(kind string, is bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if is {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// Ignored describes a fault in an annotation or label of the node. The fault
// begins with this word.
func Ignored(fault string) string {
	return "the node's " + fault + "; the whole value counts as missing"
}

func configCondition(c Config, p policy.Config) metav1.Condition {
	var faults []string
	if len(c.Faults) > 0 {
		faults = append(faults, c.From+": "+list(c.Faults, maxListed)+"; the last valid values hold")
	}
	if len(c.Ignored) > 0 {
		faults = append(faults, list(c.Ignored, maxListed))
	}
	enabled := enabledBy(p)
	switch missing := c.missingText(enabled); {
	case missing != "" && (c.Missing.Lost || len(enabled) == 0):
		return condition(ConfigAccepted, false, v1alpha1.ConfigMapMissing, strings.Join(append([]string{missing}, faults...), "; "))
	case len(faults) > 0:
		return condition(ConfigAccepted, false, reasonFaults, strings.Join(faults, "; "))
	case c.Trouble != "":
		return condition(ConfigAccepted, true, reasonNotRead, c.From+" is not read now, and what was read last holds: "+c.Trouble)
	case missing != "":
		return condition(ConfigAccepted, true, reasonFromFile, missing)
	case c.Unlikely:
		return condition(ConfigAccepted, true, v1alpha1.ReasonUnlikely, c.From+": "+list(c.Notices, maxListed))
	case len(c.Notices) > 0:
		return condition(ConfigAccepted, true, reasonPartly, c.From+": "+list(c.Notices, maxListed))
	}
	return condition(ConfigAccepted, true, reasonAsAsked, c.From)
}

// missingText says that the ConfigMap does not exist, and what holds without it.
// It returns "" if the ConfigMap exists.
func (c Config) missingText(enabled []string) string {
	switch {
	case !c.Missing.Is:
		return ""
	case !c.Missing.Until.IsZero():
		return fmt.Sprintf("%s does not exist since %s: its last content holds until %s, and then the file of tenond",
			c.From, c.Missing.Since.Format(time.TimeOnly), c.Missing.Until.Format(time.TimeOnly))
	case len(enabled) == 0:
		return c.From + " does not exist: the file of tenond holds, and it enables neither isolation nor batch resources nor another strategy"
	}
	return fmt.Sprintf("%s does not exist: the file of tenond holds, and it enables %s", c.From, strings.Join(enabled, ", "))
}

// enabledBy returns the features that a configuration enables.
func enabledBy(p policy.Config) (names []string) {
	for _, f := range features {
		if f.asked(p) {
			names = append(names, f.name)
		}
	}
	if p.Overcommit.Enable {
		names = append(names, "batch resources")
	}
	return names
}

func podsCondition(p Pods) metav1.Condition {
	switch {
	case p.Trouble != "":
		return condition(PodsKnown, false, reasonNotTold, p.Trouble)
	case p.From == "":
		return condition(PodsKnown, false, reasonNotTold, "the pods of this node are not known since the start of the agent: it keeps those that the last agent knew")
	case p.Containers.Outside > 0:
		return condition(PodsKnown, false, reasonElsewhere, fmt.Sprintf(
			"the cgroup drivers of the kubelet and of the container runtime differ: %d of %d running containers are not in the cgroup of their pod, such as %s. "+
				"Tenon sets their own limits; what it does to pods and to all best-effort work does not reach them: give both the driver systemd",
			p.Containers.Outside, p.Containers.Running, p.Containers.Example))
	case p.Containers.OtherDriver > 0:
		return condition(PodsKnown, false, reasonElsewhere, fmt.Sprintf(
			"%d of %d running containers are in pods that the kubelet made with another cgroup driver than it has now, such as %s: the driver was changed while they ran. "+
				"Tenon does not bound them: drain the node",
			p.Containers.OtherDriver, p.Containers.Running, p.Containers.Example))
	case p.Containers.Running > 0 && p.Containers.Inside == 0:
		return condition(PodsKnown, false, reasonElsewhere, fmt.Sprintf(
			"%d containers run and none of their cgroups is where the cgroup driver and root of the kubelet put it, below a cgroup such as %s: Tenon cannot bound them. Do the kubelet and the container runtime have the same driver?",
			p.Containers.Running, p.Containers.Expected))
	case len(p.Remarks) > 0:
		return condition(PodsKnown, true, reasonPartly, fmt.Sprintf("by %s: %s", theOf(p.From), list(p.Remarks, maxListed)))
	}
	return condition(PodsKnown, true, reasonTold, "by "+theOf(p.From))
}

func theOf(from string) string { return "the " + from }

// knobsCondition reports knobs that refuse each write, and write conflicts. A
// single failed write is not reported: the next tick tries again.
func knobsCondition(v View) metav1.Condition {
	var refused []string
	for _, r := range v.Tick.Refused {
		refused = append(refused, r.String())
	}
	contested := writeconflict.Remarks(v.Tick.Snapshot)
	switch {
	case len(refused) > 0:
		return condition(KnobsWritten, false, reasonRefused, list(refused, maxListed))
	case len(contested) > 0:
		return condition(KnobsWritten, true, reasonContested, list(contested, maxListed))
	}
	return condition(KnobsWritten, true, reasonAsAsked, "")
}

// agentCondition reports the troubles of the agent itself.
func agentCondition(troubles []string) metav1.Condition {
	if len(troubles) > 0 {
		return condition(AgentHealthy, false, reasonTrouble, list(troubles, maxListed))
	}
	return condition(AgentHealthy, true, reasonAsAsked, "")
}

// suppressCondition reports whether best-effort work is bounded now.
func suppressCondition(v View) metav1.Condition {
	why := "there is no best-effort work"
	for _, w := range v.Tick.Wants {
		if w.Owner != plan.OwnerSuppress {
			continue
		}
		if w.Intent == plan.Set {
			return condition(Suppressing, true, reasonBounded, fmt.Sprintf("%v: %v: %s", w.Knob, w.Value, w.Reason))
		}
		why = w.Reason
	}
	return condition(Suppressing, false, reasonNothing, why)
}
