package bind

import (
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestMemoryThatMayNotBeUsedIsNoLocalMemory has two NUMA nodes, and a workload with own
// CPUs on the second one. Its cgroup may use the memory of the given nodes. If that is
// not the memory of its CPUs, the workload stays as it is, and the user learns that.
func TestMemoryThatMayNotBeUsedIsNoLocalMemory(t *testing.T) {
	wantOf := func(may ...unit.CPU) (plan.Want, bool) {
		w := node.Workload{ID: "db", Class: node.LSE, Cgroup: "ls/db"}
		w.Usage.Memory = node.Some[unit.Bytes](1 << 30)
		s := node.Snapshot{Workloads: []node.Workload{w}, Knobs: node.Knobs{Kernel: node.Kernel{CgroupVersion: 2}, Now: map[node.Knob]node.Value{}}}
		for c := range unit.CPU(4) {
			s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: c, Core: node.CoreID(c), L3: node.CacheID(c / 2), NUMA: node.NUMANode(c / 2)})
		}
		s.Topology.Memory = []node.NUMAMemory{{NUMA: 0, Size: 32 << 30}, {NUMA: 1, Size: 32 << 30}}
		mems := node.Knob{Cgroup: w.Cgroup, File: node.FileMems}
		s.Knobs.Now[mems] = node.CPUs{Set: unit.CPUSetOf(may...)}
		s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
		g := hold.Grants{Held: hold.Held{Allocations: map[node.WorkloadID]cpus.Allocation{w.ID: {Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(2, 3)}}}}
		for _, want := range LS(g, facts.LayoutOf(s), s) {
			if want.Knob == mems {
				return want, true
			}
		}
		return plan.Want{}, false
	}
	if w, said := wantOf(); !said || w.Intent != plan.Set || w.Value != (node.CPUs{Set: unit.CPUSetOf(1)}) {
		t.Errorf("all memory: %+v", w)
	}
	if w, said := wantOf(1); said {
		t.Errorf("only the memory of its CPUs: %+v", w)
	}
	if w, said := wantOf(0); !said || w.Intent != plan.Release {
		t.Errorf("only memory of the other node: said %v, %+v", said, w)
	}
}
