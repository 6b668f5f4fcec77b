package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/match"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// nodeWithProgram returns the workloads of a node: the BE program yarn-nm of
// host-application-config, and a BE pod that is smaller and has a higher
// priority.
func nodeWithProgram(t *testing.T) (program, pod node.Workload) {
	t.Helper()
	c, faults := config.ParseConfigMap(map[string]string{"host-application-config": `{"applications":[{"name":"yarn-nm","qos":"BE"}]}`})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	n, _ := c.Node(nil, nil)
	all, _ := match.Workloads(rulesOf(n.Applications, kube.Layout{}), []match.Group{{Path: "host-best-effort", Direct: false}, {Path: "host-best-effort/yarn-nm", Direct: true}})
	if len(all) != 1 {
		t.Fatalf("workloads %+v", all)
	}
	program = all[0]
	program.Usage = node.Usage{CPU: node.Some(time.Minute), Memory: node.Some(unit.Bytes(80 << 30))}
	pod = node.Workload{ID: "pod", Class: node.BE, Cgroup: "kubepods/pod", ContentionRoot: "kubepods/pod", Priority: 5500, CPURequest: node.Some(unit.CPUs(64)),
		Usage: node.Usage{CPU: node.Some(time.Minute), Memory: node.Some(unit.Bytes(10 << 30))}}
	return program, pod
}

// TestProgramsOutsideOfKubernetesAreNotEvicted checks that an eviction ends a
// pod beside a program that is larger and has a lower priority. It also checks
// that the program, which has no request, does not prevent an eviction by
// satisfaction.
func TestProgramsOutsideOfKubernetesAreNotEvicted(t *testing.T) {
	program, pod := nodeWithProgram(t)
	for name, c := range map[string]evict.Config{
		"memory":       {Memory: evict.MemoryConfig{ThresholdPercent: 70, LowerPercent: 60}},
		"cpu":          {CPU: evict.CPUConfig{ThresholdPercent: 70, LowerPercent: 60, Window: time.Second}},
		"satisfaction": {CPU: evict.CPUConfig{SatisfactionLower: 60, SatisfactionUpper: 90, UsageThreshold: 10, Window: 2 * time.Second}},
	} {
		online := unit.CPUSetOf(0, 1, 2, 3)
		s := node.Snapshot{
			Workloads: []node.Workload{program, pod}, MemoryTotal: node.Some(unit.Bytes(100 << 30)),
			Usage: node.Usage{Memory: node.Some(unit.Bytes(95 << 30))},
		}
		for cpu := range online.All() {
			s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: cpu})
		}
		s.Knobs.Now = map[node.Knob]node.Value{evict.RunKnob(program): node.Running, evict.RunKnob(pod): node.Running}
		u := facts.Use{Workload: map[node.WorkloadID]unit.MilliCPU{program.ID: 3000, pod.ID: 900}, CPU: map[unit.CPU]unit.MilliCPU{0: 1000, 1: 1000, 2: 1000, 3: 900}}
		var st evict.State
		var asked []string
		for i := range 10 {
			s.At = time.Unix(int64(i), 0)
			var wants []plan.Want
			st, wants = evict.Decide(c, st, facts.LayoutOf(s), u, s)
			for _, w := range wants {
				if w.Intent == plan.Set {
					asked = append(asked, string(w.Knob.Cgroup)+" "+string(w.Value.(node.Run)))
				}
				if strings.Contains(w.Reason, "no satisfaction") {
					t.Errorf("%s: %s", name, w.Reason)
				}
			}
		}
		if slices.Index(asked, "kubepods/pod "+string(node.AskedToEnd)) != 0 || slices.ContainsFunc(asked, func(s string) bool { return strings.HasPrefix(s, string(program.Cgroup)) }) {
			t.Errorf("%s: asked %q", name, asked)
		}
	}
}

// TestProgramsAboveBatchReduceTheBatchResources checks that the priority of a BE
// program decides whether its usage counts, as in Koordinator (GetHostAppHPUsed).
func TestProgramsAboveBatchReduceTheBatchResources(t *testing.T) {
	c, faults := config.ParseConfigMap(map[string]string{"host-application-config": `{"applications":[
{"name":"none","qos":"BE"},{"name":"free","qos":"BE","priority":"koord-free"},{"name":"batch","qos":"BE","priority":"koord-batch"},
{"name":"mid","qos":"BE","priority":"koord-mid"},{"name":"prod","qos":"BE","priority":"koord-prod"}]}`})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	n, _ := c.Node(nil, nil)
	var counted []string
	for _, r := range rulesOf(n.Applications, kube.Layout{}) {
		all, _ := match.Workloads([]match.Rule{r}, []match.Group{{Path: node.CgroupPath(r.Cgroups[0]), Direct: true}})
		if len(all) == 1 && all[0].Mid {
			counted = append(counted, r.Name)
		}
	}
	if want := []string{"mid", "prod"}; !slices.Equal(counted, want) {
		t.Errorf("these programs reduce the batch resources: %q, want %q", counted, want)
	}
}
