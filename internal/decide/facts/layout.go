// Package facts derives from a snapshot what more than one policy needs: the
// contention roots, CPU use as rates, the values that knobs had before Tenon's
// first write, and how reasons print amounts.
package facts

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// A Layout says where the work of one class, as a rule BE, competes with other
// work in the tree of cgroups. A weight decides between siblings only, and a
// limit bounds everything below it, so both belong on the contention root: the
// highest cgroup that holds work of that class and no other.
type Layout struct {
	// Roots are the contention roots of the class, each once, in the order of
	// the workloads.
	Roots []node.CgroupPath
	// RootOf is the contention root of each workload, in the order of the
	// snapshot; "" for work of other classes, and for workloads in Shared.
	RootOf []node.CgroupPath
	// Shared are the cgroups of workloads of the class without a contention
	// root: they hold work of other classes, too, or their root is unknown. A
	// limit or weight there would slow the work that must be protected.
	Shared []node.CgroupPath
	// Others counts the workloads of other classes in and below each cgroup.
	Others map[node.CgroupPath]int

	isRoot map[node.CgroupPath]bool
}

// LayoutOf is the layout of BE.
func LayoutOf(s node.Snapshot) Layout { return LayoutFor(node.BE, s) }

// LayoutFor is the layout of one class.
func LayoutFor(c node.Class, s node.Snapshot) Layout {
	l := Layout{
		RootOf: make([]node.CgroupPath, len(s.Workloads)),
		Others: make(map[node.CgroupPath]int, len(s.Workloads)),
		isRoot: map[node.CgroupPath]bool{},
	}
	for _, w := range s.Workloads {
		if w.Class == c {
			continue
		}
		for p := w.Cgroup; ; p = p.Parent() {
			l.Others[p]++
			if p == "" {
				break
			}
		}
	}
	for i, w := range s.Workloads {
		if w.Class != c {
			continue
		}
		m := l.rootOf(w)
		l.RootOf[i] = m
		switch {
		case m == "":
			l.Shared = append(l.Shared, w.Cgroup)
		case !l.isRoot[m]:
			l.isRoot[m] = true
			l.Roots = append(l.Roots, m)
		}
	}
	return l
}

// rootOf returns w.Meet, or, where work of another class has come since that was
// read, the highest cgroup between it and w's own that holds none.
func (l Layout) rootOf(w node.Workload) node.CgroupPath {
	if w.ContentionRoot == "" || l.Others[w.Cgroup] > 0 {
		return ""
	}
	m := w.Cgroup
	for p := m.Parent(); p != "" && w.ContentionRoot.Contains(p) && l.Others[p] == 0; p = p.Parent() {
		m = p
	}
	return m
}

// RootAbove returns the contention root at or above p.
func (l Layout) RootAbove(p node.CgroupPath) (node.CgroupPath, bool) {
	for ; p != ""; p = p.Parent() {
		if l.isRoot[p] {
			return p, true
		}
	}
	return "", false
}

// IdleCgroups are the cgroups whose weight makes the work yield: the contention
// roots, or the cgroups below a root whose weight another manager keeps.
func (l Layout) IdleCgroups(s node.Snapshot) []node.CgroupPath {
	var all []node.CgroupPath
	for i, w := range s.Workloads {
		switch m := l.RootOf[i]; {
		case m == "":
		case m != w.IdleCgroup && m.Contains(w.IdleCgroup) && w.IdleCgroup.Contains(w.Cgroup):
			all = append(all, w.IdleCgroup)
		default:
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Reach says how far a weight at m reaches, for a reason: weights decide between
// siblings, so work outside m's parent competes with the parent.
func (l Layout) Reach(m node.CgroupPath) string {
	up := m.Parent()
	if up == "" || l.Others[up] == l.Others[""] {
		return ""
	}
	return fmt.Sprintf(", within %s: against work outside, the weight of %s decides", up, up)
}

// LayoutOfOne is the layout of the i-th workload of s by itself: its own cgroup is
// the contention root.
func LayoutOfOne(i int, s node.Snapshot) Layout {
	w := s.Workloads[i]
	l := Layout{
		Roots: []node.CgroupPath{w.Cgroup}, RootOf: make([]node.CgroupPath, len(s.Workloads)),
		Others: LayoutFor(w.Class, s).Others, isRoot: map[node.CgroupPath]bool{w.Cgroup: true},
	}
	l.RootOf[i] = w.Cgroup
	return l
}

// IsRoot reports whether p is a contention root.
func (l Layout) IsRoot(p node.CgroupPath) bool { return l.isRoot[p] }
