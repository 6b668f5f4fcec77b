package match

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// A world is a random tree with random rules. It has few different names, so
// that rules overlap in many ways.
type world struct {
	rules  []Rule
	groups []Group
}

func newWorld(r *rand.Rand) world {
	var w world
	seen := map[node.CgroupPath]bool{}
	for range 1 + r.IntN(25) {
		var p node.CgroupPath
		for range 1 + r.IntN(4) {
			p = p.Join(string("abcd"[r.IntN(4)]))
			if !seen[p] {
				seen[p] = true
				w.groups = append(w.groups, Group{Path: p, Direct: r.IntN(4) == 0})
			}
		}
	}
	pieces := []string{"a", "b", "c", "d", "*", "**", "[ab]", "?"}
	for i := range r.IntN(6) {
		rule := Rule{Name: fmt.Sprint(i), Class: node.Classes[r.IntN(len(node.Classes))]}
		for range 1 + r.IntN(2) {
			var parts []string
			for range 1 + r.IntN(3) {
				parts = append(parts, pieces[r.IntN(len(pieces))])
			}
			rule.Cgroups = append(rule.Cgroups, strings.Join(parts, "/"))
		}
		w.rules = append(w.rules, rule)
	}
	return w
}

// ruleOf defines in a simple way what Workloads must do. It returns the first
// rule that matches the group or an ancestor.
func (w world) ruleOf(p node.CgroupPath) int {
	first := len(w.rules)
	for ; p != ""; p = p.Parent() {
		for i, r := range w.rules[:first] {
			if slices.ContainsFunc(r.Cgroups, func(g string) bool { return pathGlob(0, g).matches(string(p), "") }) {
				first = i
				break
			}
		}
	}
	return first
}

func (w world) below(p node.CgroupPath) []Group {
	return slices.DeleteFunc(slices.Clone(w.groups), func(g Group) bool { return g.Path == p || !p.Contains(g.Path) })
}

func worlds(t *testing.T, claim func(t *testing.T, w world, workloads []node.Workload)) {
	t.Helper()
	for seed := range uint64(3000) {
		w := newWorld(rand.New(rand.NewPCG(seed, 1)))
		workloads, _ := Workloads(w.rules, w.groups)
		claim(t, w, workloads)
		if t.Failed() {
			t.Fatalf("seed %d: groups %v, rules %+v give %v", seed, w.groups, w.rules, printWorkloads(workloads))
		}
	}
}

func TestEveryMatchedGroupIsInOneWorkloadOrHoldsThatOfAnEarlierRule(t *testing.T) {
	worlds(t, func(t *testing.T, w world, workloads []node.Workload) {
		for _, g := range w.groups {
			var in []node.Workload
			for _, wl := range workloads {
				if wl.Cgroup.Contains(g.Path) {
					in = append(in, wl)
				}
			}
			own := w.ruleOf(g.Path)
			split := slices.ContainsFunc(w.below(g.Path), func(b Group) bool { return w.ruleOf(b.Path) < own })
			switch {
			case len(in) > 1:
				t.Errorf("%s is in %v", g.Path, printWorkloads(in))
			case len(in) == 1 && (own == len(w.rules) || in[0].Rule != w.rules[own].Name || in[0].Class != w.rules[own].Class):
				t.Errorf("%s of rule %d is in %v", g.Path, own, printWorkloads(in))
			case len(in) == 0 && own < len(w.rules) && !split:
				t.Errorf("%s of rule %d is in no workload", g.Path, own)
			case len(in) == 1 && split:
				t.Errorf("%s is in %v and holds work of an earlier rule", g.Path, printWorkloads(in))
			}
		}
	})
}

func TestWorkloadsAreAsHighAsTheyCanBe(t *testing.T) {
	worlds(t, func(t *testing.T, w world, workloads []node.Workload) {
		for _, wl := range workloads {
			p := wl.Cgroup.Parent()
			own := w.ruleOf(wl.Cgroup)
			same := func(b Group) bool { return w.ruleOf(b.Path) == own }
			if p != "" && w.ruleOf(p) == own && !slices.ContainsFunc(w.below(p), func(b Group) bool { return !same(b) }) {
				t.Errorf("%s could be %s", wl.Cgroup, p)
			}
			if wl.Cgroup == "" {
				t.Error("the root is a workload")
			}
		}
	})
}

func TestContentionRootsHoldOneSideAndAreAsHighAsTheyCanBe(t *testing.T) {
	worlds(t, func(t *testing.T, w world, workloads []node.Workload) {
		// pure reports whether all groups at and below p are in a workload of
		// the side, or are ancestors of one.
		pure := func(p node.CgroupPath, s side) bool {
			within := func(g Group) bool {
				return slices.ContainsFunc(workloads, func(wl node.Workload) bool {
					return wl.Cgroup.Contains(g.Path) && sideOf(wl.Class) == s
				})
			}
			for _, g := range w.groups {
				if p.Contains(g.Path) && !within(g) && (g.Direct || len(w.below(g.Path)) == 0) {
					return false
				}
			}
			return true
		}
		for _, wl := range workloads {
			s := sideOf(wl.Class)
			if !wl.ContentionRoot.Contains(wl.Cgroup) || wl.ContentionRoot == "" || !pure(wl.ContentionRoot, s) {
				t.Errorf("%s of %s meets in %q", wl.Cgroup, wl.Class, wl.ContentionRoot)
			}
			if up := wl.ContentionRoot.Parent(); up != "" && pure(up, s) {
				t.Errorf("%s of %s meets in %q and could in %q", wl.Cgroup, wl.Class, wl.ContentionRoot, up)
			}
		}
	})
}

func TestOrderAndLeavesWithProcessesDoNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	worlds(t, func(t *testing.T, w world, workloads []node.Workload) {
		_, remarks := Workloads(w.rules, w.groups)
		shuffled := slices.Clone(w.groups)
		for i, g := range shuffled {
			if len(w.below(g.Path)) == 0 {
				shuffled[i].Direct = !g.Direct
			}
		}
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again, others := Workloads(w.rules, append(shuffled, shuffled[0]))
		if !reflect.DeepEqual(workloads, again) || !slices.Equal(remarks, others) {
			t.Errorf("in another order: %v, %q, before: %q", printWorkloads(again), others, remarks)
		}
	})
}

// If Workloads makes a remark, the remark must be true: LS and the named branch
// of BE are siblings.
func TestBEIsRemarkedWhereAServiceIsOutsideOfItsParent(t *testing.T) {
	worlds(t, func(t *testing.T, w world, workloads []node.Workload) {
		_, remarks := Workloads(w.rules, w.groups)
		open := map[node.CgroupPath]bool{}
		for _, be := range workloads {
			for _, ls := range workloads {
				p := be.ContentionRoot.Parent()
				if be.Class == node.BE && ls.Class.Sensitive() && p != "" && !p.Contains(ls.Cgroup) {
					open[p] = true
				}
			}
		}
		n := 0
		for _, r := range remarks {
			if strings.HasPrefix(r, "BE in ") {
				n++
			}
		}
		if n != len(open) {
			t.Errorf("%d remarks for %v: %q", n, open, remarks)
		}
	})
}

func FuzzWorkloads(f *testing.F) {
	f.Add("a/b\na/b/c\na", "a/**", "**/c")
	f.Add("/a\n//\na//b\n/", "/", "**")
	f.Fuzz(func(t *testing.T, groups, first, second string) {
		rules := []Rule{globs(first), {Name: "b", Class: node.LS, Cgroups: []string{second}, Units: []string{first}}}
		workloads, _ := Workloads(rules, makeGroups(strings.Split(groups, "\n")...))
		for i, w := range workloads {
			if w.Cgroup == "" || (i > 0 && workloads[i-1].Cgroup.Contains(w.Cgroup)) {
				t.Errorf("workload %q after %v", w.Cgroup, printWorkloads(workloads[:i]))
			}
		}
	})
}
