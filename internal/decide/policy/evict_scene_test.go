package policy

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// readEvict applies the scenario lines about evictions:
//
//	evict [memory=70%] [lower=68%] [grace=10s] [priority=5]
//	evict [satisfaction=30%] [upto=60%] [near=90%] [busy=80%] [downto=70%] [window=60s] [unfreezable]
//	ends ID     all its processes have ended
//	starts ID   its cgroup was created again, with new processes
//
// A workload that is asked to end, or killed, runs until a line says that it
// ends.
func (n *scene) readEvict(t *testing.T, verb string, f []string) {
	t.Helper()
	switch verb {
	case "ends", "starts":
		id := node.WorkloadID(f[0])
		for _, w := range n.snap.Workloads {
			if w.ID == id {
				n.snap.Knobs.Now[evict.RunKnob(w)] = map[string]node.Value{"ends": node.Ended, "starts": node.Running}[verb]
				n.used[id] = 0
			}
		}
		return
	}
	c := &n.config.Evict
	n.snap.Capabilities[node.FeatureCgroupFreezer] = node.Answer{Verdict: node.Yes}
	for _, line := range f {
		w := words(line)[0]
		switch w.key {
		case "memory":
			c.Memory.ThresholdPercent = mustParse(t, w, percent)
			c.Memory.LowerPercent = c.Memory.ThresholdPercent - 2
		case "lower":
			c.Memory.LowerPercent = mustParse(t, w, percent)
		case "grace":
			c.Grace = mustParse(t, w, time.ParseDuration)
		case "priority":
			c.MostPriority = node.Some(int64(mustParse(t, w, number)))
		case "unlabelled":
			c.Unlabelled = true
		case "satisfaction":
			c.CPU.SatisfactionLower = mustParse(t, w, percent)
		case "upto":
			c.CPU.SatisfactionUpper = mustParse(t, w, percent)
		case "near":
			c.CPU.UsageThreshold = mustParse(t, w, percent)
		case "busy":
			c.CPU.ThresholdPercent = mustParse(t, w, percent)
			c.CPU.LowerPercent = c.CPU.ThresholdPercent - 2
		case "downto":
			c.CPU.LowerPercent = mustParse(t, w, percent)
		case "window":
			c.CPU.Window = mustParse(t, w, time.ParseDuration)
		case "unfreezable":
			n.snap.Capabilities[node.FeatureCgroupFreezer] = node.Answer{Verdict: node.No}
		case "off":
			*c = evict.Config{}
		default:
			t.Fatalf("scenario word %q: unknown", w.key)
		}
	}
	n.showRuns()
}

// showRuns gives each BE workload the knob run.
func (n *scene) showRuns() {
	for _, w := range n.snap.Workloads {
		if _, shown := n.snap.Knobs.Now[evict.RunKnob(w)]; w.Class == node.BE && !shown {
			n.snap.Knobs.Now[evict.RunKnob(w)] = node.Running
		}
	}
}

// stops applies a step that ends processes. It returns false if s is another
// kind of step. A step that ends processes takes some time and thaws the
// cgroup, but changes no other value.
func (n *scene) stops(s plan.Step) bool {
	v, isRun := s.To.(node.Run)
	if !isRun || !v.EndsProcesses() {
		return false
	}
	n.snap.Knobs.Now[s.Knob] = node.Running
	delete(n.snap.Knobs.Before, s.Knob)
	return true
}
