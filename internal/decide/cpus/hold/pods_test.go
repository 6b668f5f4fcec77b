package hold

import (
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAPodKeepsItsCPUsBesideAnotherOfItsName replaces a pod by another one of its
// name. While both exist, the IDs of their workloads have the UIDs. The UIDs are such
// that the new pod comes first in the order of IDs. Later the new pod is replaced at
// once by a third one, which must not keep the CPUs of the second: the third has a
// choice of its own.
func TestAPodKeepsItsCPUsBesideAnotherOfItsName(t *testing.T) {
	topo := machine(1, 2, 2, 2)
	for name, r := range map[string]cpus.Request{
		"own CPUs": {Policy: cpus.Exclusive, CPUs: 2},
		"seats":    {Policy: cpus.Shared, CPUs: 2, CPU: 2000},
		"a pool":   {Policy: cpus.Pool, CPU: 3000, Within: cpus.L3},
	} {
		var had Held
		decide := func(uids map[node.WorkloadID]string, choice *cpus.Choice) map[string]unit.CPUSet {
			s := node.Snapshot{Topology: topo, Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
			for _, id := range []node.WorkloadID{"ns/web", "ns/web/1", "ns/web/2"} {
				uid, there := uids[id]
				if !there {
					continue
				}
				w := node.Workload{ID: id, Class: node.LS, Cgroup: node.CgroupPath("pods/" + uid), Overrides: node.Overrides{CPUs: node.CPUOverride{Pod: uid, Chosen: choice}}}
				w.Overrides.CPUs.Request = r
				s.Workloads = append(s.Workloads, w)
				s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
			}
			had = Decide(facts.NodeCPUs{}, 0, had, s).Held
			all := map[string]unit.CPUSet{}
			for id, uid := range uids {
				set, held := had.Set(id)
				if !held {
					t.Errorf("%s: %s with the UID %s has none: %s", name, id, uid, had.Text(id))
				}
				all[uid] = set
			}
			return all
		}
		alone := decide(map[node.WorkloadID]string{"ns/web": "2"}, nil)["2"]
		both := decide(map[node.WorkloadID]string{"ns/web/1": "1", "ns/web/2": "2"}, nil)
		if both["2"] != alone || !both["1"].Intersect(alone).Empty() {
			t.Errorf("%s: the old pod has %v, and had %v; the new one has %v", name, both["2"], alone, both["1"])
		}
		after := decide(map[node.WorkloadID]string{"ns/web": "1"}, nil)["1"]
		if after != both["1"] {
			t.Errorf("%s: the new pod has %v, and had %v before the old one ended", name, after, both["1"])
		}
		choice := cpus.Choice{Topology: pick.Compile(topo).Hash(), Policy: r.Policy, CPUs: alone, Domain: alone}
		third := decide(map[node.WorkloadID]string{"ns/web": "3"}, &choice)["3"]
		if third != alone {
			t.Errorf("%s: the third pod has %v, and its scheduler chose %v: %s", name, third, alone, had.Text("ns/web"))
		}
	}
}
