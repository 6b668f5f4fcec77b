package policy

import "tenon.sh/tenon/internal/node"

// A layout says where the work of one class, as a rule best-effort work, meets
// the others in the tree of cgroups. Weights decide between siblings only, and a
// limit bounds all below it: both belong on the highest cgroup that holds
// nothing else.
type layout struct {
	// meets are the cgroups at which work of the class meets the others, each
	// once, in the order of the workloads.
	meets []node.CgroupPath
	// of is the meet of each workload, in the order of the snapshot; "" for
	// work of other classes, and for what is in shared.
	of []node.CgroupPath
	// shared are cgroups of workloads of the class without such a place: they
	// hold other work, too, or nobody knows where they meet it. What bounds
	// or yields there would hurt the work that must be protected.
	shared []node.CgroupPath
	// others counts the workloads of other classes in and below each cgroup.
	others map[node.CgroupPath]int

	isMeet map[node.CgroupPath]bool
}

// layoutOf is the layout of best-effort work.
func layoutOf(s node.Snapshot) layout { return layoutFor(node.BE, s) }

func layoutFor(c node.Class, s node.Snapshot) layout {
	l := layout{
		of:     make([]node.CgroupPath, len(s.Workloads)),
		others: map[node.CgroupPath]int{},
		isMeet: map[node.CgroupPath]bool{},
	}
	for _, w := range s.Workloads {
		if w.Class == c {
			continue
		}
		for p := w.Cgroup; ; p = p.Parent() {
			l.others[p]++
			if p == "" {
				break
			}
		}
	}
	for i, w := range s.Workloads {
		if w.Class != c {
			continue
		}
		m := l.meetOf(w)
		l.of[i] = m
		switch {
		case m == "":
			l.shared = append(l.shared, w.Cgroup)
		case !l.isMeet[m]:
			l.isMeet[m] = true
			l.meets = append(l.meets, m)
		}
	}
	return l
}

// meetOf is w.Meet, or below it where other work has come in since: the
// highest cgroup from there down to w's own without other work.
func (l layout) meetOf(w node.Workload) node.CgroupPath {
	if w.Meet == "" || l.others[w.Cgroup] > 0 {
		return ""
	}
	m := w.Cgroup
	for p := m.Parent(); p != "" && w.Meet.Contains(p) && l.others[p] == 0; p = p.Parent() {
		m = p
	}
	return m
}

// meetAbove returns the meet at or above p.
func (l layout) meetAbove(p node.CgroupPath) (node.CgroupPath, bool) {
	for ; p != ""; p = p.Parent() {
		if l.isMeet[p] {
			return p, true
		}
	}
	return "", false
}
