// Package match gives workloads their class: from the rules of a configuration
// and the cgroups that exist it makes the workloads of a node, and says where
// the kernel cannot do with them what the rules are for.
package match

import "tenon.sh/tenon/internal/node"

// A Group is a cgroup that exists.
type Group struct {
	Path node.CgroupPath
	// Direct says that it has processes of its own, not only below it. It
	// matters for groups that have others below them, and for no others.
	Direct bool
	// Container is the container whose cgroup it is; nil: of none.
	Container *Container
}

// A Container is what the owner of a container says of it.
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

// Workloads returns the workloads that the rules make of the groups, in the
// order of their paths with parents first, and remarks for the user.
//
// A rule takes all below what it matches. A workload is the highest group
// that belongs to one rule whole. Where an earlier rule has a part of it, the
// rest is taken apart: the groups beside that part are workloads of their
// own, and what is directly in between belongs to none. The root is never a
// workload. The order of the groups does not matter.
func Workloads(rules []Rule, groups []Group) (workloads []node.Workload, remarks []string) {
	t := treeOf(groups)
	t.apply(rules)
	t.weigh(rules)
	workloads = make([]node.Workload, 0, t.wholes())
	for i, e := range t {
		if !e.whole {
			continue
		}
		r := rules[e.rule]
		workloads = append(workloads, node.Workload{
			ID:            node.WorkloadID(e.path),
			Class:         r.Class,
			Rule:          r.Name,
			Container:     e.container.name(),
			Cgroup:        e.path,
			Meet:          t[t.meet(i)].path,
			CPULimit:      r.CPULimit,
			CPURequest:    r.CPURequest,
			MemoryLimit:   r.MemoryLimit,
			MemoryRequest: r.MemoryRequest,
			Priority:      r.Priority,
			Objective:     r.Objective,
		})
	}
	remarks = append(remarks, t.idleRules(rules)...)
	remarks = append(remarks, t.leftBetween(rules)...)
	return workloads, append(remarks, t.unprotected(rules)...)
}
