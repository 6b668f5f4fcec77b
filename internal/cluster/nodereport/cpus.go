package nodereport

import (
	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
)

// cpusOf returns the CPUs of the node and the pods that hold them. CPUs of work
// outside pods count as reserved.
func cpusOf(v View) *v1alpha1.CPUs {
	s, g := v.Tick.Snapshot, v.Tick.Held
	if len(s.Topology.CPUs) == 0 {
		return nil
	}
	pool := v.Policy.Pool.WithIsolated(s).Counted(s)
	r := place.Report{Topology: s.Topology, Manager: v.CPUManager, Reserved: s.Topology.All().Minus(pool), Keep: hold.Keep(v.Policy.Suppress.KeepPercent(), pool)}
	notes := map[string]node.WorkloadID{} // by UID
	for _, w := range s.Workloads {
		uid := w.Overrides.CPUs.Pod
		h, held := g.Shared[w.ID]
		if set, own := g.Of[w.ID]; own {
			h, held = cpus.Allocation{Policy: cpus.Exclusive, CPUs: set, Exclusive: w.Overrides.CPUs.Exclusive}, true
		}
		why := g.Why[w.ID]
		switch {
		case held && uid == "":
			r.Reserved = r.Reserved.Union(h.CPUs)
		case held:
			r.Held = append(r.Held, place.Held{UID: place.UID(uid), Hold: h})
			notes[uid] = w.ID
		case uid != "" && why != "":
			r.Refused = append(r.Refused, place.UID(uid))
			notes[uid] = w.ID
		}
	}
	cpus := cpureport.Convert(r)
	for i := range cpus.Refused {
		p := &cpus.Refused[i]
		p.Why = clip(g.Why[notes[p.UID]])
	}
	for i := range cpus.Held {
		h := &cpus.Held[i]
		id := notes[h.UID]
		if h.By = string(g.By[id]); g.By[id] == hold.ByNode {
			h.Why = clip(g.Because(id))
		}
	}
	return cpus
}
