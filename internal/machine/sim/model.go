package sim

import (
	"slices"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Advance advances the time, and gives each task CPU time. It divides CPU like
// a fluid: sibling groups and tasks get CPU by weight, and what one of them
// leaves goes to the others. No group exceeds its quota or its CPUs. The model
// computes no latency: tasks do not wake up, do not migrate, and do not evict
// cache lines. One call should advance the time by much less than a period of
// the loop under test.
func (n *Node) Advance(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = n.now.Add(d)
	cpus := n.topology.All()
	used := n.grant("", unit.CPUs(cpus.Len()), d)
	each := used / time.Duration(max(cpus.Len(), 1))
	for c := range cpus.All() {
		n.busy[c] += each // the model does not know which CPUs were used, so all count equally
	}
}

// A share is a group or task that competes for CPU with its siblings.
type share struct {
	path   node.CgroupPath // path of a group; unused for a task
	group  bool
	weight float64
	want   unit.MilliCPU
	got    unit.MilliCPU
}

// grant offers a group the amount cpu for the time d. It returns the CPU time
// that the group used.
func (n *Node) grant(p node.CgroupPath, cpu unit.MilliCPU, d time.Duration) time.Duration {
	g := n.groups[p]
	free, wanted := n.appetite(p)
	cpu = min(cpu, wanted)
	if free > wanted && cpu == wanted {
		g.throttled += d
	}
	shares := n.sharesOf(p)
	fill(cpu, shares)
	var used time.Duration
	for _, s := range shares {
		if s.group {
			used += n.grant(s.path, s.got, d)
		} else {
			used += d * time.Duration(s.got) / 1000
		}
	}
	g.cpu += used
	return used
}

// appetite returns how much CPU the tasks in and below a group would use. free
// is the amount without the group's own quota and CPU set, and limited the
// amount with them.
func (n *Node) appetite(p node.CgroupPath) (free, limited unit.MilliCPU) {
	for _, s := range n.sharesOf(p) {
		free += s.want
	}
	limited = free
	if p == "" {
		return free, limited
	}
	g := n.groups[p]
	if quota, period := g.bandwidth(n.version); quota >= 0 && period > 0 {
		limited = min(limited, unit.MilliCPU(quota*1000/period))
	}
	cpus := g.set("cpuset.cpus")
	if n.version == 2 {
		cpus = n.effectiveSet(p, "cpuset.cpus")
	}
	return free, min(limited, unit.CPUs(cpus.Len()))
}

func (n *Node) sharesOf(p node.CgroupPath) []share {
	const taskWeight = 1024
	var all []share
	for _, c := range n.children(p) {
		_, want := n.appetite(c)
		all = append(all, share{path: c, group: true, weight: n.weight(c), want: want})
	}
	for _, t := range n.tasks {
		if t.at == p && !n.isFrozen(p) {
			all = append(all, share{weight: taskWeight, want: t.demand})
		}
	}
	return all
}

// weight returns the load weight of a group in the kernel's unit (default: 1024).
func (n *Node) weight(p node.CgroupPath) float64 {
	const idleWeight = 3 // WEIGHT_IDLEPRIO in kernel/sched/sched.h
	g := n.groups[p]
	switch {
	case g.files["cpu.idle"] == "1":
		return idleWeight
	case n.version == 1:
		return float64(g.number("cpu.shares"))
	}
	return float64(g.number("cpu.weight")) * 1024 / 100
}

// fill divides an amount of CPU among shares by weight. If a share needs less
// than its part, the others get the rest.
func fill(cpu unit.MilliCPU, shares []share) {
	slices.SortStableFunc(shares, func(a, b share) int {
		switch x, y := float64(a.want)*b.weight, float64(b.want)*a.weight; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	var weight float64
	for _, s := range shares {
		weight += s.weight
	}
	for i := range shares {
		s := &shares[i]
		if weight > 0 {
			s.got = min(s.want, unit.MilliCPU(float64(cpu)*s.weight/weight))
		}
		cpu -= s.got
		weight -= s.weight
	}
}
