package run

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A division says which CPUs each part of the experiment uses.
type division struct {
	limit   int           // of the job
	servers int           // number of web servers; 1: only their mechanism can be shown
	each    int           // limit of a server; 0: there is no room even for one
	client  unit.CPUSet   // of the load
	pollers []unit.CPUSet // of the open loop on each server, disjoint; empty: there is no open loop
	service unit.CPUSet   // of the servers
	refused []string
}

// divide divides the tested CPUs among the servers and their client. Two
// servers need twice the limit of one, and the client needs one CPU.
func (c Config) divide(t node.Topology, tested unit.CPUSet) (division, error) {
	cpus := tested.Len()
	d := division{limit: c.Limit}
	if d.limit == 0 {
		d.limit = max(cpus/2, 1)
	}
	if d.limit > cpus {
		return d, fmt.Errorf("--limit %d: %w", d.limit, tooFew("the job", d.limit, cpus))
	}
	d.refused = append(d.refused, "static: no mode of its own, because of whole cores the kubelet chooses those of pinned")
	if cpus < 2 {
		d.refused = append(d.refused, fmt.Sprintf("nginx: %v", tooFew("a server and its client", 2, cpus)))
		return d, nil
	}
	sets := pick.Compile(t).Cut(tested, []int{cpus - max(cpus/4, 1), max(cpus/4, 1)})
	d.service, d.client, d.servers = sets[0], sets[1], 2
	d.each = min(max(d.service.Len()/2, 1), d.limit)
	if cpus < 3 {
		// The only worker may use both CPUs. The thread of the client is on one
		// of them.
		d.servers, d.each, d.service = 1, 1, tested
		d.refused = append(d.refused, fmt.Sprintf("nginx: %v: no claim about requests per second or latency, and no open loop", tooFew("two servers and their client", 3, cpus)))
		return d, nil
	}
	if d.client.Len() < d.servers {
		d.refused = append(d.refused, fmt.Sprintf("nginx, open loop: %v: a client polls, and needs a CPU of its own", tooFew("the clients", d.servers, d.client.Len())))
		return d, nil
	}
	each := d.client.Len() / d.servers
	d.pollers = pick.Compile(t).Cut(d.client, slices.Repeat([]int{each}, d.servers))
	return d, nil
}

func tooFew(of string, need, have int) testbed.TooFewCPUs {
	return testbed.TooFewCPUs{For: of, Need: unit.CPUs(need), Have: unit.CPUs(have)}
}

// boundsOf returns the bounds of n equal pieces of work in a mode. limit is the CPU
// limit of each piece. With StaticBurst, a piece has all CPUs of the work and no
// quota. Tenon's loop then writes its CPUs and its quota.
func boundsOf(m pinning.Mode, t node.Topology, all unit.CPUSet, n, limit int) []testbed.Bounds {
	list := make([]testbed.Bounds, n)
	var sets []unit.CPUSet
	switch m {
	case pinning.Pinned, pinning.PinnedQuota:
		sets = testbed.Slices(t, all, limit)
	case pinning.PinnedWorst:
		sets = worst(t, all, n, limit)
	default:
		sets = slices.Repeat([]unit.CPUSet{all}, n)
	}
	for i := range list {
		list[i].CPUs = sets[i]
		if m == pinning.Shared || m == pinning.SharedAA || m == pinning.SharedWarm || m == pinning.PinnedQuota {
			list[i].Quota = unit.CPUs(limit)
		}
	}
	return list
}

// whyUseless returns the reason why a mode of n equal pieces of work shows
// nothing on this machine. It returns "" if the mode is useful.
func whyUseless(m pinning.Mode, t node.Topology, all unit.CPUSet, n, limit int) string {
	switch m {
	case pinning.PinnedWorst:
		siblings, caches := strain(t, testbed.Slices(t, all, limit)[:n])
		if s, c := strain(t, worst(t, all, n, limit)); s <= siblings && c <= caches {
			return "no choice of CPUs here is worse than that of pinned: it has no more siblings of used CPUs, and is in no more caches"
		}
	case pinning.StaticBurst:
		if !slices.ContainsFunc(testbed.Homes(t, all, n, unit.CPUs(limit)), func(home unit.CPUSet) bool { return home != all }) {
			return "no L3 cache or NUMA node is a smaller pool with room for the limit: it is the same as shared"
		}
	}
	return ""
}

// worst returns n disjoint sets of CPUs, with limit CPUs each, chosen as badly
// as the machine allows. A set takes all threads of a core before the next
// core. The next core is in another L3 cache, as far away as possible.
func worst(t node.Topology, all unit.CPUSet, n, limit int) []unit.CPUSet {
	m := pick.Compile(t)
	caches := m.Domains(cpus.L3)
	cores := make([][]unit.CPUSet, len(caches)) // of each cache
	for _, core := range pick.Cores(m) {
		i := slices.IndexFunc(caches, func(c unit.CPUSet) bool { return c.Contains(core) })
		if core = core.Intersect(all); !core.Empty() {
			cores[i] = append(cores[i], core)
		}
	}
	var order []unit.CPU
	for round := 0; len(order) < all.Len(); round++ {
		for i := range cores {
			at := i / 2 // the first cache, the last, the second, the last but one
			if i%2 == 1 {
				at = len(cores) - 1 - i/2
			}
			if round < len(cores[at]) {
				for c := range cores[at][round].All() {
					order = append(order, c)
				}
			}
		}
	}
	sets := make([]unit.CPUSet, n)
	for i := range sets {
		sets[i] = unit.CPUSetOf(order[i*limit : (i+1)*limit]...)
	}
	return sets
}

// strain returns two numbers: the used CPUs that have a used sibling, and the
// L3 caches in use. An L3 cache counts once for each set that uses it.
func strain(t node.Topology, sets []unit.CPUSet) (siblings, caches int) {
	var used unit.CPUSet
	for _, s := range sets {
		used = used.Union(s)
	}
	for c := range used.All() {
		if t.Siblings(c).Intersect(used).Len() > 1 {
			siblings++
		}
	}
	for _, cache := range pick.Compile(t).Domains(cpus.L3) {
		for _, s := range sets {
			if !s.Intersect(cache).Empty() {
				caches++
			}
		}
	}
	return siblings, caches
}
