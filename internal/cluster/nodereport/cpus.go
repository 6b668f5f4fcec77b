package nodereport

import (
	"cmp"

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
	counted := v.Policy.NodeCPUs.WithIsolated(s).Counted(s)
	r := place.Report{Topology: s.Topology, Manager: v.CPUManager, Reserved: s.Topology.All().Minus(counted), Keep: hold.Keep(v.Policy.Suppress.KeepPercent(), counted), Pods: map[place.UID]cpus.Allocation{}}
	ids := map[string]node.WorkloadID{} // by UID
	for _, w := range s.Workloads {
		uid := w.Overrides.CPUs.Pod
		n, asks := g.Notes[w.ID]
		a, has := g.Allocations[w.ID]
		switch {
		case uid == "" && has:
			r.Reserved = r.Reserved.Union(a.CPUs)
		case uid != "" && asks:
			a.Policy = n.Policy
			r.Pods[place.UID(uid)], ids[uid] = a, w.ID
		}
	}
	out := cpureport.Convert(r)
	for i := range out.Pods {
		p := &out.Pods[i]
		n := g.Notes[ids[p.UID]]
		p.Pod, p.By = string(ids[p.UID]), string(n.By)
		switch {
		case n.Refused():
			p.Code, p.Why, p.Numbers = n.Code().String(), clip(n.Text()), numbersOf(&n)
		case n.By == cpus.ByNode:
			p.Code, p.Why, p.Numbers = n.Code().String(), clip(n.Because()), numbersOf(&n)
		}
	}
	return out
}

// numbersOf returns the numbers behind a note, or nil if there are none.
func numbersOf(n *cpus.Note) *v1alpha1.CPUNumbers {
	r := cmp.Or(n.Reason, n.Choice)
	if r == nil {
		return nil
	}
	return &v1alpha1.CPUNumbers{Asked: int32(n.Asked), Given: int32(max(r.Given, 0)), Open: int32(r.Open), Stay: int32(r.Stay), Others: r.Others}
}
