package match

import (
	"cmp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// A tree is the groups below the root, parents first, each directly followed by
// all groups below it. So the groups below a group are a range of the slice.
type tree []entry

type entry struct {
	path   node.CgroupPath
	direct bool
	parent int // -1: the root
	end    int // behind the last group below

	container *Container

	rule  int  // the first rule that matches the group or one above it
	least int  // the first rule of the group and all below it
	whole bool // the group is a workload, with all below it
	side  side // the workload of the group; has no meaning inside a workload
}

// A side is a set of workloads that may share a cgroup: among them, no CPU
// weight has to protect one from another.
type side int8

const (
	nothing side = iota // no group at all
	bestEffort
	sensitive
	system
	mixed // of several sides, or with processes of no workload
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

// and is the side of a group that holds both.
func (s side) and(o side) side {
	if s == nothing || s == o {
		return o
	}
	return mixed
}

// treeOf lays out the groups. The order in which they come does not matter,
// and a group above them that is missing is taken to exist.
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

// parentsFirst orders paths so that all below a group follow it directly,
// which the order of plain strings does not: there a-b stands between a and
// a/b.
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

// apply finds the rule of each group. A group belongs to the first rule that
// matches it or a group above it; none, len(rules), comes after all rules.
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
	// The highest groups that belong to one rule with all below them.
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

// weigh finds what each group holds.
func (t tree) weigh(rules []Rule) {
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
			p.side = p.side.and(e.side)
		}
	}
}

// wholes counts the workloads.
func (t tree) wholes() int {
	n := 0
	for i := range t {
		if t[i].whole {
			n++
		}
	}
	return n
}

// contentionRoot returns the highest group above a workload, or the workload
// itself, that holds only workloads of its side.
func (t tree) contentionRoot(i int) int {
	for s := t[i].side; t[i].parent >= 0 && t[t[i].parent].side == s; {
		i = t[i].parent
	}
	return i
}

// holds reports whether the group p is q or above it.
func (t tree) holds(p, q int) bool { return p <= q && q < t[p].end }
