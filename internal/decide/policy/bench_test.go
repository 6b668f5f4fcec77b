package policy

import (
	"fmt"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// busyNode returns a node with the given number of workloads, half of them BE.
func busyNode(b *testing.B, workloads, cpus, version int) *scene {
	return nodeWith(b, workloads/2, workloads-workloads/2, cpus, version)
}

// nodeWith returns a node with services and BE workloads. Every policy is
// enabled, and all counters are present.
func nodeWith(b *testing.B, services, batch, cpus, version int) *scene {
	n := newScene(machine(cpus, 2, cpus/26+1, 2), version)
	n.config = Config{
		CPUQOS:     isolation.Config{Enable: true},
		Suppress:   suppress.Config{Enable: true, ThresholdPercent: 65, Policy: suppress.ByCPUSet},
		Overcommit: colocation(),
	}
	for i := range services + batch {
		w := node.Workload{ID: node.WorkloadID(fmt.Sprint(i)), Class: node.LS, ContentionRoot: "ls", MemoryRequest: node.Some(unit.Bytes(1 << 30))}
		if i%2 == 1 && i/2 < batch || i/2 >= services {
			w.Class, w.ContentionRoot = node.BE, "be"
		}
		w.Cgroup = w.ContentionRoot.Join("pod" + string(w.ID)).Join("container")
		if w.Class == node.LS {
			w.CPULimit = node.Some(unit.CPUs(2))
			w.Objective.RunQueueDelay = node.Some(2 * time.Millisecond)
		} else {
			w.CPURequest = node.Some(unit.MilliCPU(100))
		}
		n.add(w)
	}
	n.enableAll(b)
	n.memory = map[node.WorkloadID]unit.Bytes{"node": 10 * gib}
	return n
}

// BenchmarkDecide measures one tick of Decide and plan.Diff on a node in a
// steady state.
func BenchmarkDecide(b *testing.B) {
	for _, version := range []int{1, 2} {
		for _, workloads := range []int{100, 1000} {
			for _, cpus := range []int{104, 1024} {
				b.Run(fmt.Sprintf("v%d/workloads=%d/cpus=%d", version, workloads, cpus), func(b *testing.B) {
					n := busyNode(b, workloads, cpus, version)
					n.runSteady(b, cpus*500/workloads)
					b.ReportAllocs()
					for b.Loop() {
						_, wants := Decide(n.config, n.state, n.snap)
						plan.Diff(n.snap.Knobs, wants)
					}
				})
			}
		}
	}
}

// runSteady runs twenty ticks with the same use, and then adds the use of one
// more period.
func (n *scene) runSteady(b *testing.B, each int) {
	p := spell{every: time.Second, use: map[node.WorkloadID]unit.MilliCPU{}, on: map[node.WorkloadID]unit.CPUSet{}}
	for _, w := range n.snap.Workloads {
		p.use[w.ID] = unit.MilliCPU(each)
		if w.Class == node.LS {
			p.waits = append(p.waits, waiting{id: w.ID, kind: "waits", counts: map[time.Duration]uint64{100 * time.Microsecond: 500}})
		}
		if n.snap.Knobs.Kernel.CgroupVersion == 1 {
			p.on[w.ID] = n.snap.Topology.All()
		}
	}
	for range 20 {
		n.pass(p)
		n.decide(b)
	}
	n.pass(p)
}

// BenchmarkDecideSlices measures one tick of Decide on a node with 256 CPUs and
// 100 BE workloads, alone and beside 100 services. The BE workloads are either in
// no slice or spread over forty workers.
func BenchmarkDecideSlices(b *testing.B) {
	for _, services := range []int{0, 100} {
		for name, all := range map[string][]worker.Slice{"off": nil, "on": {{Name: "enc", CPUs: 3, Count: 40, Rules: []string{"enc"}}}} {
			b.Run(fmt.Sprintf("services=%d/slices=%s", services, name), func(b *testing.B) {
				n := nodeWith(b, services, 100, 256, 2)
				n.config.Seats.Slices = all
				for i := range n.snap.Workloads {
					if w := &n.snap.Workloads[i]; w.Class == node.BE {
						w.Rule = "enc"
					}
				}
				n.runSteady(b, 400)
				if all != nil && len(n.state.Seats.Workers) != 40 {
					b.Fatalf("%d workers have CPUs, want 40", len(n.state.Seats.Workers))
				}
				b.ReportAllocs()
				for b.Loop() {
					Decide(n.config, n.state, n.snap)
				}
			})
		}
	}
}
