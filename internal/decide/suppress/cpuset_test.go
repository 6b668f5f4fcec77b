package suppress

import (
	"testing"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func cpuset(t *testing.T, text string) unit.CPUSet {
	t.Helper()
	set, err := unit.ParseCPUSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestAWorkloadWithCgroupsBelowLeavesItsSeats checks a pod on cgroup v1 that leaves
// its seats for other CPUs, and in which a cgroup has been made meanwhile. For one
// tick all of them have both sets. At no step may a cgroup lack a CPU of a cgroup
// below it.
func TestAWorkloadWithCgroupsBelowLeavesItsSeats(t *testing.T) {
	knob := func(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileCPUs} }
	now := map[node.Knob]node.Value{
		knob("be"): node.CPUs{Set: cpuset(t, "0-3")}, knob("be/pod"): node.CPUs{Set: cpuset(t, "3")}, knob("be/pod/part"): node.CPUs{Set: cpuset(t, "3")},
	}
	x := suppressor{chain: []link{{"be", "be"}, {"be/pod", "be"}, {"be/pod/part", "be"}}}
	x.snap.Knobs = node.Knobs{Kernel: node.Kernel{CgroupVersion: 1}, Now: now}
	for tick, want := range []string{"0-1,3", "0-1"} {
		wants := x.setsOf(map[node.CgroupPath]unit.CPUSet{"be": cpuset(t, "0-1")}, nil)
		for _, s := range plan.Diff(x.snap.Knobs, wants) {
			now[s.Knob] = s.To
			for child, v := range now {
				if up, is := now[knob(child.Cgroup.Parent())].(node.CPUs); is && !up.Set.Contains(v.(node.CPUs).Set) {
					t.Errorf("tick %d: after %v, %v has %v, which is not within %v", tick, s, child, v, up)
				}
			}
		}
		for k, v := range now {
			if v.(node.CPUs).Set != cpuset(t, want) {
				t.Errorf("tick %d: %v is %v, want %s", tick, k, v, want)
			}
		}
	}
}

// TestARootBelowTheFormerOneKeepsOffLSE checks the tick in which other work appears
// below a contention root. The root of BE work is then a deeper cgroup, and the
// former root loses its set from Tenon in the same tick. BE must not get the CPUs of
// LSE work even for this tick.
func TestARootBelowTheFormerOneKeepsOffLSE(t *testing.T) {
	for version, own := range map[int]string{1: "5", 2: ""} {
		former, root, lse := node.Knob{Cgroup: "be", File: node.FileCPUs}, node.Knob{Cgroup: "be/0", File: node.FileCPUs}, node.Knob{Cgroup: "lse/web", File: node.FileCPUs}
		x := suppressor{Layout: facts.Layout{Roots: []node.CgroupPath{"be/0"}}, chain: []link{{"be/0", "be/0"}}}
		for c := range unit.CPU(8) {
			x.snap.Topology.CPUs = append(x.snap.Topology.CPUs, node.LogicalCPU{ID: c})
		}
		x.snap.Workloads = []node.Workload{{ID: "web", Class: node.LSE, Cgroup: "lse/web", ContentionRoot: "lse"}}
		x.snap.Knobs = node.Knobs{
			Kernel: node.Kernel{CgroupVersion: version},
			Now: map[node.Knob]node.Value{
				former: node.CPUs{Set: cpuset(t, "5")}, root: node.CPUs{Set: cpuset(t, own)}, lse: node.CPUs{Set: cpuset(t, "0-4,6-7")},
			},
			Before: map[node.Knob]node.Value{former: node.CPUs{Set: cpuset(t, "0-7")}},
		}
		if version == 1 { // the former root narrowed the cgroups below it, too
			x.snap.Knobs.Before[root] = node.CPUs{Set: cpuset(t, "0-7")}
		}
		_, wants := x.keepOff(plan.Release, "a quota bounds BE")
		if len(wants) != 1 || wants[0].Intent != plan.Set || wants[0].Value != (node.CPUs{Set: cpuset(t, "5")}) || wants[0].Reason == "" {
			t.Errorf("v%d: %+v, want CPU 5 and a reason", version, wants)
		}
	}
}
