package place

import (
	"cmp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// Explain returns why a request does not fit, with the numbers of the node and
// the names of the workloads that need its CPUs. The code is Fits if it fits. name
// returns the name of a workload. All numbers come from the functions that decide,
// so that they cannot contradict the decision.
func (n *Node) Explain(c cpus.Request, name func(UID) string) cpus.Reason {
	u := n.m.Sum(n.seats)
	r := cpus.Reason{Code: u.Room(&c)}
	switch {
	case r.Code == cpus.Fits || r.Code == cpus.NoDemand:
		return r
	case c.Policy == cpus.Exclusive:
		n.exclusive(&r, &u, c, name)
	default:
		n.shared(&r, &u, c, name)
	}
	r.Request = c
	return r
}

// exclusive adds the numbers for a request for exclusive CPUs.
func (n *Node) exclusive(r *cpus.Reason, u *pick.Summary, c cpus.Request, name func(UID) string) {
	if r.Code == cpus.NotWhole {
		r.Sizes = sizes(n.m)
		return
	}
	open := n.Open()
	r.Given, r.Open = given(u, c), open.Len()
	if c.Bind == cpus.OnlyWhole || c.Bind == cpus.OnlySpread {
		r.Cores = onCores(n.m, open, c.Bind == cpus.OnlyWhole)
	}
	r.Stay = r.Open - given(u, cpus.Request{Policy: cpus.Exclusive, CPUs: r.Open + 1})
	if r.Stay > n.seats.Keep() {
		n.name(r, name)
	}
}

// given returns the largest number of own CPUs, below the number in the claim,
// for which the claim would fit. It tries each number with the function that
// decides.
func given(u *pick.Summary, c cpus.Request) int {
	for c.CPUs = min(c.CPUs, unit.MaxCPUs+1) - 1; c.CPUs > 0 && u.Room(&c) != cpus.Fits; {
		c.CPUs--
	}
	return max(c.CPUs, 0)
}

// shared adds the numbers for a request for shared CPUs or a pool.
func (n *Node) shared(r *cpus.Reason, u *pick.Summary, c cpus.Request, name func(UID) string) {
	open := n.Open()
	r.Open = open.Len()
	if r.Code == cpus.SharedRequested || r.Code == cpus.PoolRequested {
		r.CPU = left(u, c)
		n.name(r, name)
		return
	}
	for _, set := range n.m.Domains(c.Within) {
		r.Given = max(r.Given, set.Intersect(open).Len())
	}
}

// left returns the largest request, below the request of the claim, with which
// a claim for seats or a pool would fit.
func left(u *pick.Summary, c cpus.Request) unit.MilliCPU {
	fits := func(request unit.MilliCPU) bool {
		c.CPU = request
		return u.Room(&c) == cpus.Fits
	}
	least, above := unit.MilliCPU(0), c.CPU
	for above-least > 1 {
		if at := (least + above) / 2; fits(at) {
			least = at
		} else {
			above = at
		}
	}
	return least
}

// mostNames is the number of workloads that a reason names.
const mostNames = 3

// name adds the workloads with shared CPUs or pools, the largest request first.
func (n *Node) name(r *cpus.Reason, name func(UID) string) {
	type sharer struct {
		name string
		cpu  unit.MilliCPU
	}
	var all []sharer
	for _, h := range n.holds {
		if h.hold.Policy > cpus.Exclusive {
			all = append(all, sharer{name(h.uid), h.hold.CPU})
		}
	}
	slices.SortFunc(all, func(a, b sharer) int {
		return cmp.Or(cmp.Compare(b.cpu, a.cpu), strings.Compare(a.name, b.name))
	})
	for _, s := range all {
		r.Others, r.Shared = append(r.Others, s.name), r.Shared+s.cpu
	}
	if n := len(r.Others); n > mostNames {
		r.Others, r.OthersMore = r.Others[:mostNames-1], n-mostNames+1
	}
}

// onCores counts the open CPUs on wholly open cores, if whole is set. Otherwise
// it counts the cores that have an open CPU.
func onCores(m *pick.Map, open unit.CPUSet, whole bool) int {
	n := 0
	for _, core := range pick.Cores(m) {
		switch {
		case whole && open.Contains(core):
			n += core.Len()
		case !whole && !open.Intersect(core).Empty():
			n++
		}
	}
	return n
}

// sizes returns the numbers of CPUs that the cores have.
func sizes(m *pick.Map) []int {
	var all []int
	for _, core := range pick.Cores(m) {
		if !slices.Contains(all, core.Len()) {
			all = append(all, core.Len())
		}
	}
	slices.Sort(all)
	return all
}
