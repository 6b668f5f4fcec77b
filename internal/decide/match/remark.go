package match

import (
	"fmt"
	"slices"
)

// idleRules names the rules that have no workload, with the reasons.
func (t tree) idleRules(rules []Rule) []string {
	has := make([]bool, len(rules))
	for _, e := range t {
		if e.whole {
			has[e.rule] = true
		}
	}
	var remarks []string
	for i, r := range rules {
		if has[i] {
			continue
		}
		globs := globsOf(rules[i : i+1])
		at := slices.IndexFunc(t, func(e entry) bool {
			_, ok := firstMatch(globs, &e, 1)
			return ok
		})
		if at < 0 {
			what := "cgroup"
			if len(r.Containers) > 0 {
				what = "cgroup and no running container"
			}
			remarks = append(remarks, fmt.Sprintf("rule %q matches no %s", r.Name, what))
			continue
		}
		remarks = append(remarks, fmt.Sprintf("rule %q has no workload: its matches, such as %s, belong to earlier rules, such as %q",
			r.Name, t[at].path, rules[t[at].least].Name))
	}
	return remarks
}

// leftBetween names groups whose own processes are in no workload. A rule
// matches such a group, but an earlier rule takes a group below it.
func (t tree) leftBetween(rules []Rule) []string {
	var remarks []string
	for i := 0; i < len(t); i++ {
		e := t[i]
		if e.whole {
			i = e.end - 1
			continue
		}
		if e.rule == len(rules) || !e.direct {
			continue
		}
		other := i
		for t[other].rule != e.least {
			other++
		}
		remarks = append(remarks, fmt.Sprintf("the processes directly in %s are in no workload: rule %q matches it, but %s below it belongs to rule %q",
			e.path, rules[e.rule].Name, t[other].path, rules[e.least].Name))
	}
	return remarks
}

// unprotected names BE work that can delay LS work because no weight prevents
// it.
//
// The kernel shares the CPU level by level: at each level the children of one
// group, and its own tasks, compete by weight
// (Documentation/scheduler/sched-design-CFS.rst, section 7). Two workloads
// compete in the lowest common ancestor of their cgroups. Each of them is in
// one child of this ancestor, and competes with the weight of that child.
// cpu.idle further down does not change that.
//
// A contention root therefore protects the groups that have the same parent. It
// does not protect groups outside this parent, because they compete with the
// weight of the parent or of an ancestor. Tenon does not set that weight,
// because other work is in the same branch.
func (t tree) unprotected(rules []Rule) []string {
	var services []int // the workloads to protect
	branches := map[int][]int{}
	var parents []int // the keys of branches
	for i, e := range t {
		switch {
		case !e.whole:
		case e.side == sensitive:
			services = append(services, i)
		case e.side == bestEffort:
			m := t.contentionRoot(i)
			p := t[m].parent
			if p < 0 {
				continue
			}
			if len(branches[p]) == 0 {
				parents = append(parents, p)
			}
			if n := len(branches[p]); n == 0 || branches[p][n-1] != m {
				branches[p] = append(branches[p], m)
			}
		}
	}
	slices.Sort(parents)
	var remarks []string
	for _, p := range parents {
		far := slices.IndexFunc(services, func(i int) bool { return !t.holds(p, i) })
		if far < 0 {
			continue
		}
		service := services[far]
		branch := p
		for up := t[p].parent; up >= 0 && !t.holds(up, service); up = t[up].parent {
			branch = up
		}
		others := ""
		if n := len(branches[p]) - 1; n > 0 {
			others = fmt.Sprintf(" and %d more", n)
		}
		what, remedy := t.intruder(p, rules)
		remarks = append(remarks, fmt.Sprintf("BE in %s%s does not give way to %s in %s: weights apply between siblings only, and there BE has the weight of %s, which also holds %s; %s",
			t[branches[p][0]].path, others, rules[t[service].rule].Class, t[service].path, t[branch].path, what, remedy))
	}
	return remarks
}

// intruder names the work of other classes in a group of BE, and says how the
// user can separate them.
func (t tree) intruder(p int, rules []Rule) (what, remedy string) {
	const move = "give BE a slice of its own"
	for {
		e := t[p]
		switch {
		case e.whole:
			return fmt.Sprintf("%s (%s by rule %q)", e.path, rules[e.rule].Class, rules[e.rule].Name), move
		case e.end == p+1:
			return fmt.Sprintf("%s (no rule)", e.path), fmt.Sprintf("give %s a BE rule, or BE a slice of its own", e.path)
		case e.direct:
			return fmt.Sprintf("processes directly in %s", e.path), move
		}
		for p++; t[p].side == bestEffort; p = t[p].end {
		}
	}
}
