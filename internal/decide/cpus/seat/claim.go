package seat

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/worker"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A claim is the demand of one workload, or of one worker of a slice.
type claim struct {
	work *node.Workload // of a worker: the first of its workloads
	// The field at names the worker, and mates has its other workloads. Both
	// are empty for a workload with a CPU limit.
	at    worker.Place
	mates []*node.Workload
	limit unit.MilliCPU
	cpus  int
	may   unit.CPUSet
	have  unit.CPUSet
	// complete says that the claim has exactly the seats that it demands.
	complete bool
}

// claims lists the workloads and workers that demand seats. Those that already
// have seats come first. It also returns all CPUs that they may use.
func (st State) claims(in Input, places worker.Places) ([]claim, unit.CPUSet) {
	all := make([]claim, 0, len(in.May))
	workers := make(map[worker.Place]int, len(places)) // index of the claim of each worker
	size := make(map[string]int, len(in.Slices))
	for _, s := range in.Slices {
		size[s.Name] = s.CPUs
	}
	var union unit.CPUSet
	for i := range in.Snap.Workloads {
		w := &in.Snap.Workloads[i]
		may := in.May[w.ID]
		limit, limited := limitOf(w, in.Snap.Knobs)
		at, sliced := places[w.ID]
		j, open := workers[at]
		switch {
		case may.Empty(), !sliced && !(in.Enable && limited):
			continue
		case sliced && open:
			c := &all[j]
			c.mates, c.may = append(c.mates, w), c.may.Intersect(may)
			continue
		case sliced:
			workers[at] = len(all)
			all = append(all, claim{work: w, at: at, cpus: size[at.Slice], may: may, have: st.cpusOf(at)})
		default:
			n := int((min(limit, unit.CPUs(unit.MaxCPUs)) + 999) / unit.CPUs(1))
			all = append(all, claim{work: w, limit: limit, cpus: n, may: may, have: st.Have[w.ID]})
		}
	}
	for i := range all {
		c := &all[i]
		c.cpus, c.have = min(c.cpus, c.may.Len()), c.have.Intersect(c.may)
		c.complete = c.have.Len() == c.cpus
		union = union.Union(c.may)
	}
	return inOrder(all), union
}

// inOrder returns the claims in the order in which they get seats. It sorts
// pointers, because a claim is large.
func inOrder(all []claim) []claim {
	order := make([]*claim, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortStableFunc(order, func(a, b *claim) int {
		return cmp.Or(compareKept(a, b), cmp.Compare(b.work.Priority, a.work.Priority), a.at.Compare(b.at), strings.Compare(string(a.work.ID), string(b.work.ID)))
	})
	sorted := make([]claim, len(all))
	for i, c := range order {
		sorted[i] = *c
	}
	return sorted
}

// members returns the workloads of a claim.
func (c claim) members() iter.Seq[*node.Workload] {
	return func(yield func(*node.Workload) bool) {
		if !yield(c.work) {
			return
		}
		for _, w := range c.mates {
			if !yield(w) {
				return
			}
		}
	}
}

func compareKept(a, b *claim) int {
	switch {
	case a.complete == b.complete:
		return 0
	case a.complete:
		return -1
	}
	return 1
}

// limitOf returns the CPU limit that the owner of a BE workload has set.
func limitOf(w *node.Workload, k node.Knobs) (unit.MilliCPU, bool) {
	if m, asked := w.CPULimit.Value(); asked {
		return m, w.Class == node.BE && m > 0
	}
	before, _ := facts.Original(k, node.Knob{Cgroup: w.Cgroup, File: node.FileCPUMax}).(node.CPUMax)
	return facts.MilliOf(before), w.Class == node.BE && facts.IsQuota(before)
}

func demandOf(claims []claim) int {
	n := 0
	for _, c := range claims {
		n += c.cpus
	}
	return n
}
