package run

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/lab/pinning"
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

// divide divides the tested CPUs. Two servers need twice their limit, and the
// client needs one CPU.
func (c Config) divide(t node.Topology, tested unit.CPUSet) (division, error) {
	cpus := tested.Len()
	d := division{limit: c.Limit}
	if d.limit == 0 {
		d.limit = max(cpus/2, 1)
	}
	if d.limit > cpus {
		return d, fmt.Errorf("--limit %d: the job may use at most the %d tested CPUs", d.limit, cpus)
	}
	d.refused = append(d.refused,
		"static-burst: this version has no such mode; it needs pools of the L3 caches",
		"static: no mode of its own, because the kubelet would choose the CPUs that pinned has")
	if uneven(t, tested) {
		d.refused = append(d.refused, "pinned-worst: this version has no such mode, although some choices of CPUs here are worse than others")
	} else {
		d.refused = append(d.refused, "pinned-worst: every CPU here is a core of its own with the same cache, so no choice is worse")
	}
	if cpus < 2 {
		d.refused = append(d.refused, fmt.Sprintf("nginx: with %d CPU there is none for the client", cpus))
		return d, nil
	}
	sets := pick.Compile(t).Cut(tested, []int{cpus - max(cpus/4, 1), max(cpus/4, 1)})
	d.service, d.client, d.servers = sets[0], sets[1], 2
	d.each = min(max(d.service.Len()/2, 1), d.limit)
	if cpus < 3 {
		// There is one worker on both CPUs, and the thread of the client is on
		// one of them.
		d.servers, d.each, d.service = 1, 1, tested
		d.refused = append(d.refused, fmt.Sprintf("nginx: two servers and their client need 3 CPUs, the machine has %d: no claim about requests per second or latency, and no open loop", cpus))
		return d, nil
	}
	if d.client.Len() < d.servers {
		d.refused = append(d.refused, fmt.Sprintf("nginx, open loop: the clients of %d servers poll, so each needs a CPU of its own; of %d CPUs the clients have %d", d.servers, cpus, d.client.Len()))
		return d, nil
	}
	each := d.client.Len() / d.servers
	d.pollers = pick.Compile(t).Cut(d.client, slices.Repeat([]int{each}, d.servers))
	return d, nil
}

func uneven(t node.Topology, tested unit.CPUSet) bool {
	caches := map[node.CacheID]bool{}
	for _, c := range t.CPUs {
		if tested.Has(c.ID) {
			caches[c.L3] = true
			if t.Siblings(c.ID).Intersect(tested).Len() > 1 {
				return true
			}
		}
	}
	return len(caches) > 1
}

// A seat says where one piece of work runs.
type seat struct {
	cpus  unit.CPUSet
	quota unit.MilliCPU // 0: none
}

// seats returns the seats of n equal pieces of work in a mode. Each piece has
// the limit.
func seats(m pinning.Mode, t node.Topology, all unit.CPUSet, n, limit int) []seat {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = limit
	}
	own := pick.Compile(t).Cut(all, sizes)
	list := make([]seat, n)
	for i := range list {
		list[i] = seat{cpus: all}
		if m == pinning.Pinned || m == pinning.PinnedQuota {
			list[i].cpus = own[i]
		}
		if m != pinning.SharedFree && m != pinning.Pinned {
			list[i].quota = unit.CPUs(limit)
		}
	}
	return list
}
