package testbed

import (
	"context"
	"fmt"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Slices divides CPUs into as many sets of neighbours as possible, with width
// CPUs each. Sets that share no core with an earlier set come first.
func Slices(t node.Topology, cpus unit.CPUSet, width int) []unit.CPUSet {
	sizes := make([]int, cpus.Len()/width)
	for i := range sizes {
		sizes[i] = width
	}
	left := pick.Compile(t).Cut(cpus, sizes)
	var sets []unit.CPUSet
	var taken unit.CPUSet
	for len(left) > 0 {
		best := 0
		for i := range left {
			if left[i].Intersect(taken).Len() < left[best].Intersect(taken).Len() {
				best = i
			}
		}
		set := left[best]
		sets, left = append(sets, set), append(left[:best:best], left[best+1:]...)
		for c := range set.All() {
			taken = taken.Union(t.Siblings(c))
		}
	}
	return sets
}

// Homes returns the first pool of each of n pods with the annotation
// cpu-policy: static-burst and the given request. The pods are alone on the
// machine, and may use only the given CPUs. If no pool has room for a pod, it
// gets all these CPUs.
func Homes(t node.Topology, may unit.CPUSet, n int, request unit.MilliCPU) []unit.CPUSet {
	m := pick.Compile(t)
	c := cpus.Request{Policy: cpus.Pool, CPU: request}
	var holds []cpus.Allocation
	homes := make([]unit.CPUSet, n)
	for i := range homes {
		homes[i] = may
		if o, no := m.Fit(m.Seats(m.All().Minus(may), 0, holds), c); no == cpus.Fits {
			homes[i] = o.CPUs
			holds = append(holds, o.Allocation(c))
		}
	}
	return homes
}

// RunPools runs Tenon's loop for static-burst pods, one in each cgroup. limit
// is the CPU limit and the request of each pod. When RunPools returns, each
// cgroup has its pool and its quota. A pool has room for the request, so that
// on a machine without other work it never fills up and does not grow.
func (s *Site) RunPools(ctx context.Context, groups []node.CgroupPath, limit unit.MilliCPU) (*AgentRunner, error) {
	list := make([]node.Workload, len(groups))
	for i, p := range groups {
		list[i] = node.Workload{
			ID: node.WorkloadID(fmt.Sprintf("pool-%03d", i)), Class: node.LS, Cgroup: p,
			CPULimit: node.Some(limit), CPURequest: node.Some(limit),
			Overrides: node.Overrides{CPUs: node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: limit}, Grows: true}}},
		}
	}
	var config policy.Config
	config.NodeCPUs.CPUs = s.Place.Tested
	return s.RunAgent(ctx, list, config, true)
}
