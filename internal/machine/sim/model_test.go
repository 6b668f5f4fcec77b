package sim_test

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/machine/conformance"
	"tenon.sh/tenon/internal/machine/sim"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// run creates a group with a task that demands the given amount of CPU.
func run(t *testing.T, n *sim.Node, p node.CgroupPath, demand unit.MilliCPU) {
	t.Helper()
	if err := n.MakeGroup(p); err != nil {
		t.Fatal(err)
	}
	pid, err := n.Start(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Demand(pid, demand); err != nil {
		t.Fatal(err)
	}
}

// cpuUse returns how much CPU each workload gets in a second.
func cpuUse(t *testing.T, n *sim.Node) map[node.WorkloadID]unit.MilliCPU {
	t.Helper()
	counters := func() map[node.WorkloadID]time.Duration {
		s, err := n.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := map[node.WorkloadID]time.Duration{}
		for _, w := range s.Workloads {
			c[w.ID], _ = w.Usage.CPU.Value()
		}
		return c
	}
	before := counters()
	n.Advance(time.Second)
	got := map[node.WorkloadID]unit.MilliCPU{}
	for id, after := range counters() {
		got[id] = unit.MilliCPU((after - before[id]).Milliseconds())
	}
	return got
}

func TestCPUIsSharedByWeightUpToTheLimits(t *testing.T) {
	for name, c := range map[string]struct {
		demand [2]unit.MilliCPU
		files  map[string]string // files of b, on v2
		want   [2]unit.MilliCPU
	}{
		"equals share":                      {[2]unit.MilliCPU{4000, 4000}, nil, [2]unit.MilliCPU{2000, 2000}},
		"idle CPU of one goes to the other": {[2]unit.MilliCPU{500, 4000}, nil, [2]unit.MilliCPU{500, 3500}},
		"a third of the weight":             {[2]unit.MilliCPU{4000, 4000}, map[string]string{"cpu.weight": "300"}, [2]unit.MilliCPU{1000, 3000}},
		"idle yields":                       {[2]unit.MilliCPU{4000, 4000}, map[string]string{"cpu.idle": "1"}, [2]unit.MilliCPU{3988, 12}},
		"idle takes what is left":           {[2]unit.MilliCPU{1000, 4000}, map[string]string{"cpu.idle": "1"}, [2]unit.MilliCPU{1000, 3000}},
		"a quota bounds":                    {[2]unit.MilliCPU{1000, 4000}, map[string]string{"cpu.max": "50000 100000"}, [2]unit.MilliCPU{1000, 500}},
		"a CPU set bounds":                  {[2]unit.MilliCPU{1000, 4000}, map[string]string{"cpuset.cpus": "3"}, [2]unit.MilliCPU{1000, 1000}},
		"no task gets more than it demands": {[2]unit.MilliCPU{300, 200}, nil, [2]unit.MilliCPU{300, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			n := sim.New(sim.Options{Topology: conformance.Flat(4)})
			for i, p := range []node.CgroupPath{"a", "b"} {
				run(t, n, p.Join("work"), c.demand[i])
				n.Manage(node.Workload{ID: node.WorkloadID(p), Cgroup: p})
			}
			for file, text := range c.files {
				if err := n.WriteFile("b", file, text); err != nil {
					t.Fatal(err)
				}
			}
			got := cpuUse(t, n)
			if got["a"] != c.want[0] || got["b"] != c.want[1] {
				t.Errorf("a got %v and b got %v, want %v and %v", got["a"], got["b"], c.want[0], c.want[1])
			}
		})
	}
}

// TestTheLoopRunsOnTheSimulator runs the agent's loop on the simulator.
// Best-effort work must get the CPU that the service leaves idle, and must not
// take CPU from the service.
func TestTheLoopRunsOnTheSimulator(t *testing.T) {
	for _, version := range []int{1, 2} {
		n := sim.New(sim.Options{Version: version, Topology: conformance.Flat(4)})
		run(t, n, "ls/web", 1500)
		run(t, n, "be/job", 8000)
		n.Manage(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"})
		n.Manage(node.Workload{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
		a := loop.Agent{Host: n, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}
		if _, err := a.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := cpuUse(t, n)
		if got["web"] != 1500 || got["job"] != 2500 {
			t.Errorf("v%d: web got %v and the job %v, want 1500m and 2500m", version, got["web"], got["job"])
		}
		a.Config = policy.Config{}
		if _, err := a.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, _ := n.Snapshot(t.Context()); len(s.Knobs.Before) != 0 {
			t.Errorf("v%d: a disabled policy has not released %v", version, s.Knobs.Before)
		}
	}
}

// TestAGroupBornNarrowHadWhatItsParentHad creates a group below one that Tenon
// has narrowed. The new group gets a copy of the narrow set, which must not count
// as the original value of the new group.
func TestAGroupBornNarrowHadWhatItsParentHad(t *testing.T) {
	n := sim.New(sim.Options{Version: 1, Topology: conformance.Flat(4)})
	run(t, n, "be/job", 8000)
	n.Manage(node.Workload{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
	be := node.Knob{Cgroup: "be", File: node.FileCPUs}
	one, all := node.CPUs{Set: unit.CPUSetOf(0)}, node.CPUs{Set: unit.CPUSetOf(0, 1, 2, 3)}
	for _, k := range []node.Knob{{Cgroup: "be/job", File: node.FileCPUs}, be} {
		if err := n.Apply(t.Context(), plan.Step{Knob: k, To: one}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, n, "be/late", 100)
	n.Manage(node.Workload{ID: "late", Class: node.BE, Cgroup: "be/late", ContentionRoot: "be"})
	s, err := n.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := node.Knob{Cgroup: "be/late", File: node.FileCPUs}
	if s.Knobs.Now[late] != node.Value(one) || s.Knobs.Before[late] != node.Value(all) {
		t.Errorf("be/late has %v and had %v before, want %v and %v", s.Knobs.Now[late], s.Knobs.Before[late], one, all)
	}
}
