// Package match makes the workloads of a node, with their classes, from the
// rules of a configuration and the existing cgroups. It also reports rules
// whose intent the kernel cannot enforce.
package match

import "tenon.sh/tenon/internal/model/node"

// A Group is an existing cgroup.
type Group struct {
	Path node.CgroupPath
	// Direct says that processes are in the cgroup itself, and not only in its
	// descendants. It is used only for cgroups with children.
	Direct bool
	// Container is the container to which the cgroup belongs. It is nil if
	// there is none.
	Container *Container
}

// A Container holds the data that the container runtime reports.
type Container struct {
	Name   string
	Labels map[string]string
}

func (c *Container) name() string {
	if c == nil {
		return ""
	}
	return c.Name
}

// Workloads makes workloads of groups according to the rules, in the order of
// their paths, parents first. It also returns remarks for the user.
//
// A rule takes each group that it matches, with all groups below it. A workload
// is a group that belongs entirely to one rule, while its parent does not. If
// an earlier rule takes a part of a group, Workloads splits the group. The
// groups beside that part become workloads of their own, and the groups on the
// path to that part belong to no workload. The root is never a workload. The
// order of the groups does not matter.
func Workloads(rules []Rule, groups []Group) (workloads []node.Workload, remarks []string) {
	t := treeOf(groups)
	t.apply(rules)
	t.findSides(rules)
	workloads = make([]node.Workload, 0, t.countWhole())
	for i, e := range t {
		if !e.whole {
			continue
		}
		r := rules[e.rule]
		workloads = append(workloads, node.Workload{
			ID:             node.WorkloadID(e.path),
			Class:          r.Class,
			Rule:           r.Name,
			Container:      e.container.name(),
			Cgroup:         e.path,
			ContentionRoot: t[t.contentionRoot(i)].path,
			CPULimit:       r.CPULimit,
			CPURequest:     r.CPURequest,
			MemoryLimit:    r.MemoryLimit,
			MemoryRequest:  r.MemoryRequest,
			Priority:       r.Priority,
			EvictionExempt: r.EvictionExempt,
			Mid:            r.Mid,
			Objective:      r.Objective,
		})
	}
	remarks = append(remarks, t.idleRules(rules)...)
	remarks = append(remarks, t.leftBetween(rules)...)
	return workloads, append(remarks, t.unprotected(rules)...)
}
