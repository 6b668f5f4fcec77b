// Package facts derives from a snapshot the facts that several policies need:
// contention roots, CPU usage, and the values of knobs before Tenon's first
// write. It also prints amounts for reasons.
package facts

import (
	"fmt"
	"slices"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Layout says where in the cgroup tree the work of one class, usually BE,
// competes with other work. A weight matters only among sibling cgroups, and a
// limit bounds everything below its cgroup. Therefore Tenon sets weights and
// limits in the contention root: the highest cgroup that holds only work of
// that class.
type Layout struct {
	// Roots lists each contention root of the class once, in the order of the
	// workloads.
	Roots []node.CgroupPath
	// RootOf[i] is the contention root of workload i of the snapshot. It is ""
	// if the workload has another class, or if its cgroup is in Shared.
	RootOf []node.CgroupPath
	// Shared lists the cgroups of workloads that are in the class but have no
	// contention root. Such a cgroup also holds work of other classes, or its
	// root is unknown. A limit or weight in it would slow the work that Tenon
	// must protect.
	Shared []node.CgroupPath
	// Others counts the workloads of other classes in and below each cgroup.
	Others map[node.CgroupPath]int

	isRoot map[node.CgroupPath]bool
}

// LayoutOf returns the layout of BE.
func LayoutOf(s node.Snapshot) Layout { return LayoutFor(node.BE, s) }

// LayoutFor returns the layout of one class.
func LayoutFor(c node.Class, s node.Snapshot) Layout {
	l := Layout{
		RootOf: make([]node.CgroupPath, len(s.Workloads)),
		Others: make(map[node.CgroupPath]int, len(s.Workloads)),
		isRoot: map[node.CgroupPath]bool{},
	}
	for i := range s.Workloads { // a Workload is large, so the loops copy none
		w := &s.Workloads[i]
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
	for i := range s.Workloads {
		w := &s.Workloads[i]
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

// rootOf returns the contention root of w. If work of another class has
// appeared below w.ContentionRoot since the host read w, rootOf returns a
// deeper cgroup: the highest one that contains w and no work of another class.
func (l *Layout) rootOf(w *node.Workload) node.CgroupPath {
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

// IdleCgroups lists the cgroups that get a low weight so that the class gives
// way. Most are contention roots. If another component manages the weight of a
// root, a cgroup below this root takes its place.
func (l Layout) IdleCgroups(s node.Snapshot) []node.CgroupPath {
	var all []node.CgroupPath
	for i := range s.Workloads {
		w := &s.Workloads[i]
		m := l.RootOf[i]
		if m != "" && m != w.IdleCgroup && m.Contains(w.IdleCgroup) && w.IdleCgroup.Contains(w.Cgroup) {
			m = w.IdleCgroup
		}
		if m != "" && (len(all) == 0 || all[len(all)-1] != m) { // most workloads have the same root
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Reach returns a phrase for a reason, or "". The phrase says that the weight
// of the cgroup m matters only among the children of m's parent. Work outside
// the parent competes with the parent, and by the weight of the parent.
func (l Layout) Reach(m node.CgroupPath) string {
	up := m.Parent()
	if up == "" || l.Others[up] == l.Others[""] {
		return ""
	}
	return fmt.Sprintf(", within %s: against work outside, the weight of %s decides", up, up)
}

// LayoutOfOne returns the layout of the i-th workload of s alone. The
// contention root is the workload's own cgroup.
func LayoutOfOne(i int, s node.Snapshot) Layout {
	w := s.Workloads[i]
	l := Layout{
		Roots: []node.CgroupPath{w.Cgroup}, RootOf: make([]node.CgroupPath, len(s.Workloads)),
		Others: LayoutFor(w.Class, s).Others, isRoot: map[node.CgroupPath]bool{w.Cgroup: true},
	}
	l.RootOf[i] = w.Cgroup
	return l
}

// StartLimits returns, for the contention roots that are the cgroup of a pod, the quota that
// the root needs so that the container runtime can start the containers of the pod. It is
// nil except on cgroup v1, where a child's quota may not exceed its parent's.
func (l Layout) StartLimits(s *node.Snapshot) map[node.CgroupPath]unit.MilliCPU {
	if s.Knobs.Kernel.CgroupVersion != 1 {
		return nil
	}
	var all map[node.CgroupPath]unit.MilliCPU
	for i := range s.Workloads {
		w := &s.Workloads[i]
		limit, waits := w.StartLimit.Value()
		if !waits || !l.isRoot[w.Cgroup] {
			continue
		}
		if all == nil {
			all = map[node.CgroupPath]unit.MilliCPU{}
		}
		all[w.Cgroup] = max(all[w.Cgroup], limit)
	}
	return all
}

// IsRoot reports whether p is a contention root.
func (l Layout) IsRoot(p node.CgroupPath) bool { return l.isRoot[p] }
