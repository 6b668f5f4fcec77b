package place

import (
	"fmt"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// TestARefusedPodHoldsNoCPUs orders the events of a pod that its node refuses in
// different ways. a demands one CPU of two, and has a contract for CPU 1.
func TestARefusedPodHoldsNoCPUs(t *testing.T) {
	a := Pod{"a", own(1)}
	topo := machine(1, 1, 2, 1)
	empty := Report{Topology: topo, Keep: 1}
	refused := Report{Topology: topo, Keep: 1, Reserved: unit.CPUSetOf(0), Pods: map[UID]cpus.Allocation{"a": {}}}
	again := Report{Topology: topo, Keep: 1, Pods: map[UID]cpus.Allocation{"a": {}}}
	held := Report{Topology: topo, Keep: 1, Pods: map[UID]cpus.Allocation{"a": {Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(0)}}}
	contract := Contract{Choice: cpus.Choice{Topology: pick.Compile(topo).Hash(), Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(1)}}
	learn := func(r Report) func(*Ledger) { return func(l *Ledger) { l.Learn("n", r) } }
	bound := func(l *Ledger) { l.Confirm(a, "n", contract.Choice) }
	loose := func(l *Ledger) { l.Confirm(a, "n", cpus.Choice{}) }
	reserve := func(l *Ledger) {
		if c, why := l.Assume(a, "n"); why != cpus.Fits {
			t.Fatalf("%v: %s", c, why)
		}
	}
	bind := func(l *Ledger) {
		c, _, _ := l.Contract("a")
		if !l.Confirm(a, "n", c.Choice) {
			t.Error("the view changed without notice")
		}
	}
	for name, x := range map[string]struct {
		events []func(*Ledger)
		open   string
		has    bool
	}{
		"the report follows":             {[]func(*Ledger){learn(empty), bound, learn(refused)}, "1", false},
		"the report is older":            {[]func(*Ledger){learn(empty), bound, learn(empty)}, "0", true},
		"a new process":                  {[]func(*Ledger){bound, learn(refused)}, "1", false},
		"a new process, reports first":   {[]func(*Ledger){learn(refused), bound}, "1", false},
		"a later report has it":          {[]func(*Ledger){learn(empty), bound, learn(refused), learn(held)}, "1", true},
		"a later report lists it again":  {[]func(*Ledger){learn(empty), bound, learn(refused), learn(again)}, "0-1", false},
		"a later report omits it":        {[]func(*Ledger){learn(empty), bound, learn(refused), learn(empty)}, "0", true},
		"it is gone":                     {[]func(*Ledger){learn(empty), bound, learn(refused), func(l *Ledger) { l.RemovePod("a") }}, "1", false},
		"it never had a contract":        {[]func(*Ledger){learn(empty), loose, learn(refused)}, "1", false},
		"it never had one, report first": {[]func(*Ledger){learn(again), loose}, "0-1", false},
		"only reserved":                  {[]func(*Ledger){learn(again), reserve}, "0", true},
		"a bind in doubt":                {[]func(*Ledger){learn(again), reserve, func(l *Ledger) { l.Doubt("a") }}, "0", true},
		"the news of the bind is late":   {[]func(*Ledger){learn(empty), reserve, learn(again), bind}, "0-1", false},
		"and the bind was in doubt":      {[]func(*Ledger){learn(empty), reserve, func(l *Ledger) { l.Doubt("a") }, learn(again), func(l *Ledger) { l.Confirm(a, "n", cpus.Choice{}) }}, "0-1", false},
		"the report is too old":          {[]func(*Ledger){learn(empty), bound, learn(refused), func(l *Ledger) { l.CloseNode("n", cpus.Stale) }}, "1", false},
	} {
		l := New()
		for _, do := range x.events {
			do(l)
			if l.nodes["n"].m != nil {
				likeNew(t, l, "n")
			}
		}
		if v := l.View("n"); v.Open().String() != x.open || v.Has("a") != x.has {
			t.Errorf("%s: %v are open, and the pod holds CPUs: %v; want %s, %v", name, v.Open(), v.Has("a"), x.open, x.has)
		}
		l.RemovePod("a")
		l.ForgetDoubt("a", "n")
		if l.Forget("a"); !l.IsUnused("n") {
			t.Errorf("%s: the pod is gone, and its node is used: %v", name, l.View("n").Holds())
		}
	}
}

// TestACPUOfARefusedPodIsFree gives the CPU of a refused pod to another one.
func TestACPUOfARefusedPodIsFree(t *testing.T) {
	l, topo := New(), machine(1, 1, 2, 1)
	l.Learn("n", Report{Topology: topo, Keep: 1})
	c, _ := l.Assume(Pod{"a", own(1)}, "n")
	l.Confirm(Pod{"a", own(1)}, "n", c.Choice)
	r := Report{Topology: topo, Keep: 1, Reserved: topo.All().Minus(c.CPUs), Pods: map[UID]cpus.Allocation{"a": {}}}
	l.Learn("n", r)
	seat := Pod{"b", cpus.PodRequest{Request: cpus.Request{Policy: cpus.Shared, CPUs: 1, CPU: 500}}}
	if _, why := l.Assume(seat, "n"); why != cpus.Fits {
		t.Fatalf("beside a refused pod: %s", why)
	}
	if l.IsUnused("n") || l.View("n").Has("a") {
		t.Errorf("%v", l.View("n").Holds())
	}
	l.Forget("b")
	if _, why := l.Assume(Pod{"c", own(1)}, "n"); why != cpus.LastOpen {
		t.Errorf("one CPU must stay open: %q", why)
	}
	r.Reserved, r.Pods = unit.CPUSet{}, map[UID]cpus.Allocation{"a": c.Allocation(own(1).Request)}
	l.Learn("n", r)
	if open := l.View("n").Open(); open != topo.All().Minus(c.CPUs) {
		t.Errorf("the pod has its CPU again, and %v are open", open)
	}
}

// checkOwners checks that no two pods own a CPU, and returns the owned CPUs.
func checkOwners(t *testing.T, v *View) unit.CPUSet {
	t.Helper()
	var taken unit.CPUSet
	for _, h := range v.Holds() {
		if h.Policy != cpus.Exclusive {
			continue
		}
		if twice := taken.Intersect(h.CPUs); !twice.Empty() {
			t.Fatal(fmt.Sprintf("%v are owned twice: ", twice), v.Holds())
		}
		taken = taken.Union(h.CPUs)
	}
	return taken
}
