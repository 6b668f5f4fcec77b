package match

import (
	"cmp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// A tree lists the groups below the root. The descendants of each group follow
// it directly, so they are a range of the slice.
type tree []entry

type entry struct {
	path   node.CgroupPath
	direct bool
	parent int // -1: the root
	end    int // index after the last descendant

	container *Container

	rule  int  // the first rule that matches the group or an ancestor
	least int  // the lowest number of a rule that has the group or a descendant
	whole bool // the group with its descendants is a workload
	side  side // side of the work that the group holds; unused inside a workload
}

// A side is a set of classes. Workloads of these classes may share a cgroup,
// because they need no CPU weights between them.
type side int8

const (
	nothing side = iota // no group seen yet
	bestEffort
	sensitive
	system
	mixed // several sides, or processes of no workload
)

func sideOf(c node.Class) side {
	switch {
	case c == node.BE:
		return bestEffort
	case c.Sensitive():
		return sensitive
	}
	return system
}

// combine returns the side of a group that holds work of both s and o.
func (s side) combine(o side) side {
	if s == nothing || s == o {
		return o
	}
	return mixed
}

// treeOf builds the tree of the groups, which may be in any order. It adds
// missing parents.
func treeOf(groups []Group) tree {
	groups = slices.Clone(groups)
	slices.SortFunc(groups, func(a, b Group) int { return parentsFirst(string(a.Path), string(b.Path)) })
	t := make(tree, 0, len(groups)+len(groups)/4)
	last := -1 // the innermost group that is not yet complete
	for _, g := range groups {
		if g.Path == "" {
			continue
		}
		for last >= 0 && !t[last].path.Contains(g.Path) {
			t[last].end = len(t)
			last = t[last].parent
		}
		begin := 0
		if last >= 0 {
			if t[last].path == g.Path {
				t[last].direct = t[last].direct || g.Direct
				t[last].container = cmp.Or(t[last].container, g.Container)
				continue
			}
			begin = len(t[last].path) + 1
		}
		for i := begin; i <= len(g.Path); i++ {
			if i < len(g.Path) && g.Path[i] != '/' {
				continue
			}
			t = append(t, entry{path: g.Path[:i], parent: last})
			last = len(t) - 1
		}
		t[last].direct, t[last].container = g.Direct, g.Container
	}
	for ; last >= 0; last = t[last].parent {
		t[last].end = len(t)
	}
	return t
}

// parentsFirst orders paths so that the descendants of a group follow it
// directly. Plain string order would put a-b between a and a/b.
func parentsFirst(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
			continue
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		}
		return cmp.Compare(a[i], b[i])
	}
	return cmp.Compare(len(a), len(b))
}

// apply finds the rule of each group: the first rule that matches the group or
// an ancestor of it. A group without a rule gets the number len(rules), which
// is higher than the number of every rule.
func (t tree) apply(rules []Rule) {
	globs := globsOf(rules)
	for i := range t {
		e := &t[i]
		e.rule = len(rules)
		if e.parent >= 0 {
			e.rule = t[e.parent].rule
		}
		if r, ok := firstMatch(globs, e, e.rule); ok {
			e.rule = r
		}
		e.least = e.rule
	}
	for i := len(t) - 1; i >= 0; i-- {
		if p := t[i].parent; p >= 0 {
			t[p].least = min(t[p].least, t[i].least)
		}
	}
	// A workload is a group that belongs entirely to one rule, while its parent
	// does not.
	for i := 0; i < len(t); {
		e := &t[i]
		if e.rule == len(rules) || e.least < e.rule {
			i++
			continue
		}
		e.whole = true
		i = e.end
	}
}

// firstMatch returns the first rule below limit that matches the group.
func firstMatch(globs []glob, e *entry, limit int) (rule int, ok bool) {
	name := string(e.path[strings.LastIndexByte(string(e.path), '/')+1:])
	for _, g := range globs {
		if g.rule >= limit {
			break
		}
		if g.matchesGroup(e, name) {
			return g.rule, true
		}
	}
	return 0, false
}

// findSides finds the side of each group.
func (t tree) findSides(rules []Rule) {
	for i := len(t) - 1; i >= 0; i-- {
		e := &t[i]
		switch {
		case e.whole:
			e.side = sideOf(rules[e.rule].Class)
		case e.direct || e.side == nothing:
			e.side = mixed
		}
		if e.parent >= 0 {
			p := &t[e.parent]
			p.side = p.side.combine(e.side)
		}
	}
}

// countWhole counts the groups that become workloads.
func (t tree) countWhole() int {
	n := 0
	for i := range t {
		if t[i].whole {
			n++
		}
	}
	return n
}

// contentionRoot returns the highest cgroup that contains the workload i and
// only workloads of its side. This can be the cgroup of the workload itself.
func (t tree) contentionRoot(i int) int {
	for s := t[i].side; t[i].parent >= 0 && t[t[i].parent].side == s; {
		i = t[i].parent
	}
	return i
}

// holds reports whether p is q or an ancestor of q.
func (t tree) holds(p, q int) bool { return p <= q && q < t[p].end }
