package seat

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// addBatch adds BE work with a limit in the cgroup batch/ID. cpusets are the
// cgroups of that work that have a cpuset.
func addBatch(s *node.Snapshot, id node.WorkloadID, limit unit.MilliCPU, cpusets ...node.CgroupPath) {
	p := node.CgroupPath("batch").Join(string(id))
	s.Workloads = append(s.Workloads, node.Workload{ID: id, Class: node.BE, Cgroup: p, ContentionRoot: "batch", CPULimit: node.Some(limit)})
	if s.Knobs.Now == nil {
		s.Knobs.Now = map[node.Knob]node.Value{}
	}
	for _, c := range append(cpusets, p) {
		s.Knobs.Now[node.Knob{Cgroup: c, File: node.FileCPUs}] = node.CPUs{Set: s.Topology.All()}
	}
}

// TestSeatsAvoidServicesThatAreNotCounted checks a service without per-CPU
// counters. It must count as running on all CPUs that it has.
func TestSeatsAvoidServicesThatAreNotCounted(t *testing.T) {
	rest, home := unit.CPUSetOf(0, 1, 2, 3), unit.CPUSetOf(4, 5, 6, 7) // without a reason, the policy chooses the last CPUs
	for name, c := range map[string]struct {
		shared, bound unit.CPUSet
		counted       bool
		had           unit.CPUSet // seats of enc
		want          unit.CPUSet // these CPUs contain its seats
	}{
		"it chooses beside a pool":            {shared: home, want: rest},
		"it chooses beside a bound service":   {bound: home, want: rest},
		"it leaves a pool":                    {shared: home, had: unit.CPUSetOf(4, 6), want: rest},
		"it leaves a bound service":           {bound: home, had: unit.CPUSetOf(4, 6), want: rest},
		"it stays beside a pool that is idle": {shared: home, had: unit.CPUSetOf(4, 6), counted: true, want: unit.CPUSetOf(4, 6)},
		"it stays where a service may be":     {had: unit.CPUSetOf(4, 6), want: unit.CPUSetOf(4, 6)},
		"it stays where all have services":    {shared: home, bound: rest, had: unit.CPUSetOf(4, 6), want: unit.CPUSetOf(4, 6)},
	} {
		s := node.Snapshot{At: time.Unix(1000, 0), Topology: machine(8)}
		addBatch(&s, "enc", 2000)
		s.Workloads = append(s.Workloads, node.Workload{ID: "web", Class: node.LS, Cgroup: "web"}, node.Workload{ID: "db", Class: node.LS, Cgroup: "db"})
		s.Knobs.Now[node.Knob{Cgroup: "db", File: node.FileCPUs}] = node.CPUs{Set: c.bound}
		var own hold.Grants
		if !c.shared.Empty() {
			own.Allocations = map[node.WorkloadID]cpus.Allocation{"web": {Policy: cpus.Pool, CPUs: c.shared}}
		}
		var use facts.Use
		if c.counted {
			use.PerCPU = map[node.WorkloadID]map[unit.CPU]time.Duration{"web": {4: 1}}
			use.Sensitive = map[unit.CPU]unit.MilliCPU{4: 10}
		}
		var st State
		if !c.had.Empty() {
			st.Have = map[node.WorkloadID]unit.CPUSet{"enc": c.had}
		}
		_, grants, _ := Wants(Config{Enable: true}, st, facts.NodeCPUs{}, facts.LayoutOf(s), use, own, nil, s)
		if got := grants["enc"].CPUs; got.Len() != 2 || !c.want.Contains(got) {
			t.Errorf("%s: seats on %v, want 2 of %v", name, got, c.want)
		}
	}
}

// TestOnV1SeatsAreAtTheLowestCgroups checks that a parent keeps its CPUs,
// because on cgroup v1 they must contain those of its children. This must hold
// even if Tenon does not know the cgroup between parent and child.
func TestOnV1SeatsAreAtTheLowestCgroups(t *testing.T) {
	s := node.Snapshot{At: time.Unix(1000, 0), Topology: machine(16)}
	s.Knobs.Kernel.CgroupVersion = 1
	addBatch(&s, "a", 2000, "batch/a/one", "batch/a/two", "batch/a/two/x/y")
	addBatch(&s, "ab", 1000)
	addBatch(&s, "none", 0, "batch/none/x")
	s.Workloads[2].CPULimit = node.Maybe[unit.MilliCPU]{}
	_, grants, wants := Wants(Config{Enable: true}, State{}, facts.NodeCPUs{}, facts.LayoutOf(s), facts.Use{}, hold.Grants{}, nil, s)
	var at []string
	for _, w := range wants {
		at = append(at, fmt.Sprint(w.Knob.Cgroup))
	}
	slices.Sort(at)
	if want := []string{"batch/a/one", "batch/a/two/x/y", "batch/ab"}; !slices.Equal(at, want) {
		t.Errorf("seats at %v, want %v", at, want)
	}
	// One cgroup does not have its seats yet, so the quota must stay.
	for _, w := range wants {
		s.Knobs.Now[w.Knob] = w.Value
	}
	if !grants["a"].needsNoQuota(s.Knobs) || !grants["ab"].needsNoQuota(s.Knobs) {
		t.Error("work that has its seats keeps its quota")
	}
	s.Knobs.Now[node.Knob{Cgroup: "batch/a/two/x/y", File: node.FileCPUs}] = node.CPUs{Set: s.Topology.All()}
	if grants["a"].needsNoQuota(s.Knobs) {
		t.Error("a cgroup without its seats has no quota")
	}
}

// BenchmarkWantsOnV1 measures a tick of a node with 256 CPUs and 100 workloads
// with seats, each with ten cgroups.
func BenchmarkWantsOnV1(b *testing.B) {
	s := node.Snapshot{At: time.Unix(1000, 0), Topology: machine(256)}
	s.Knobs.Kernel.CgroupVersion = 1
	for i := range 100 {
		id := node.WorkloadID(fmt.Sprintf("w%03d", i))
		var in []node.CgroupPath
		for k := range 10 {
			in = append(in, node.CgroupPath(fmt.Sprintf("batch/%s/c%d", id, k)))
		}
		addBatch(&s, id, unit.CPUs(1+i%3), in...)
	}
	l := facts.LayoutOf(s)
	st, _, _ := Wants(Config{Enable: true}, State{}, facts.NodeCPUs{}, l, facts.Use{}, hold.Grants{}, nil, s)
	b.ReportAllocs()
	for b.Loop() {
		_, grants, _ := Wants(Config{Enable: true}, st, facts.NodeCPUs{}, l, facts.Use{}, hold.Grants{}, nil, s)
		for _, w := range s.Workloads {
			grants.Relieve(&w, s.Knobs, make([]plan.Want, 1))
		}
	}
}
