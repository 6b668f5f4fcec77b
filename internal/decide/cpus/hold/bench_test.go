package hold

import (
	"fmt"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// BenchmarkDecide measures a tick of a node with 256 CPUs, 48 workloads with own
// CPUs, 24 with seats and 60 services: if all keep what they have, with and
// without the choice of a scheduler, and if all are new.
func BenchmarkDecide(b *testing.B) {
	for name, decide := range map[string]func(facts.NodeCPUs, unit.Percent, Held, node.Snapshot) Grants{"now": Decide, "before": decideAsBefore} {
		for _, c := range []struct {
			name           string
			chosen, fresh  bool
			exclusive      cpus.ExclusivePolicy
			own, seats, ls int
		}{
			{"chosen", true, false, 0, 48, 24, 60},
			{"kept", false, false, 0, 48, 24, 60},
			{"new", false, true, 0, 48, 24, 60},
			{"apart", false, false, cpus.PCPULevel, 48, 24, 60},
			{"few", false, false, 0, 2, 0, 60},
		} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				s := node.Snapshot{Topology: machine(4, 4, 8, 2), Knobs: node.Knobs{Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}}
				add := func(i int, r cpus.Request) {
					w := node.Workload{ID: node.WorkloadID(fmt.Sprintf("w%03d", i)), Class: node.LS, Cgroup: node.CgroupPath(fmt.Sprintf("kubepods/burstable/pod%03d", i)), CPURequest: node.Some(unit.MilliCPU(500))}
					w.Overrides.CPUs.Request, w.Overrides.CPUs.Pod = r, string(w.ID)
					s.Workloads = append(s.Workloads, w)
					s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
				}
				for i := range c.own {
					add(i, cpus.Request{Policy: cpus.Exclusive, CPUs: 4, Exclusive: c.exclusive})
				}
				for i := range c.seats {
					add(100+i, cpus.Request{Policy: cpus.Shared, CPUs: 2, CPU: 500})
				}
				for i := range c.ls {
					add(200+i, cpus.Request{})
				}
				had := Decide(facts.NodeCPUs{}, 10, Held{Allocations: map[node.WorkloadID]cpus.Allocation{}}, s).Held
				if hash := pick.Compile(s.Topology).Hash(); c.chosen {
					for i := range s.Workloads {
						w := &s.Workloads[i]
						if a, holds := had.Allocations[w.ID]; holds {
							w.Overrides.CPUs.Chosen = &cpus.Choice{Topology: hash, Policy: a.Policy, CPUs: a.CPUs, Domain: a.Domain}
						}
					}
				}
				if c.fresh {
					had.Allocations = map[node.WorkloadID]cpus.Allocation{}
				}
				b.ReportAllocs()
				for b.Loop() {
					decide(facts.NodeCPUs{}, 10, had, s)
				}
			})
		}
	}
}
