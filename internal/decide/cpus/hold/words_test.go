package hold

import (
	"testing"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestTheNodeSaysWhyItChose checks the words about own CPUs that the node chose
// itself. The words name the CPUs of the scheduler's choice and their holder.
// They stay the same as long as the workload keeps its CPUs.
func TestTheNodeSaysWhyItChose(t *testing.T) {
	topo := machine(1, 2, 2, 2)
	pod := node.CPUOverride{Pod: "uid"}
	for name, c := range map[string]struct {
		runners  []runner
		reserved string
		topology cpus.Hash
		cgroup   string // the CPUs that the cgroup of a may use; empty: all
		want     string
	}{
		"another pod holds the CPUs": {runners: []runner{{id: "shop/a", cpus: 1, chosen: "3"}, {id: "shop/web", cpus: 2, had: "2-3"}},
			want: "shop/a has 1 CPU of its own, 1 beside others on a core, chosen by the node: its scheduler's choice has CPU 3, which shop/web holds"},
		"two pods hold them": {runners: []runner{{id: "shop/a", cpus: 2, chosen: "1-2"}, {id: "shop/web", cpus: 2, had: "2-3"}, {id: "shop/db", cpus: 2, had: "0-1"}},
			want: "shop/a has 2 CPUs of its own in one L3 cache, chosen by the node: its scheduler's choice has CPUs 1-2, which shop/db and shop/web hold"},
		"reserved": {runners: []runner{{id: "shop/a", cpus: 2, chosen: "0-1"}}, reserved: "0",
			want: "shop/a has 2 CPUs of its own in one L3 cache, chosen by the node: its scheduler's choice has CPU 0, reserved"},
		"not online": {runners: []runner{{id: "shop/a", cpus: 2, chosen: "7-8"}},
			want: "shop/a has 2 CPUs of its own in one L3 cache, chosen by the node: its scheduler's choice has CPU 8, not online"},
		"not of its cgroup": {runners: []runner{{id: "shop/a", cpus: 2, chosen: "0-1"}}, cgroup: "1-7",
			want: "shop/a has 2 CPUs of its own in one L3 cache, chosen by the node: its scheduler's choice has CPU 0, which its cgroup may not use"},
		"another number": {runners: []runner{{id: "shop/a", cpus: 2, chosen: "0-3"}},
			want: "shop/a has 2 CPUs of its own in one L3 cache, chosen by the node: its scheduler's choice has 4 CPUs, and the pod asks for 2 now"},
		"another topology": {runners: []runner{{id: "shop/a", cpus: 2, chosen: "0-1"}}, topology: 1,
			want: "shop/a has 2 CPUs of its own in one L3 cache, chosen by the node: its scheduler's choice is for another topology"},
		"too many": {runners: []runner{{id: "shop/a", cpus: 6, chosen: "0-5"}, {id: "shop/web", cpus: 2, had: "6-7"}},
			want: "shop/a requests 6 CPUs of its own, has none and is treated as LS: 5 of 6 open ones can be given, because 1 must stay open; its scheduler's choice leaves 0 CPUs to share, and at least 1 must stay"},
		"no scheduler chose": {runners: []runner{{id: "shop/a", cpus: 6, override: pod}},
			want: "shop/a has 6 CPUs of its own in one NUMA node, chosen by the node: no scheduler chose CPUs for it"},
		"work of one machine": {runners: []runner{{id: "a", cpus: 2}}, want: "a has 2 CPUs of its own in one L3 cache"},
		"as chosen": {runners: []runner{{id: "shop/a", cpus: 2, chosen: "0-1"}},
			want: "shop/a has 2 CPUs of its own in one L3 cache, as its scheduler chose"},
	} {
		t.Run(name, func(t *testing.T) {
			s := node.Snapshot{Topology: topo, Knobs: node.Knobs{Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}}
			had := map[node.WorkloadID]unit.CPUSet{}
			for i, r := range c.runners {
				if r.chosen != "" {
					r.override.Chosen = &cpus.Choice{Policy: cpus.Exclusive, CPUs: mustSet(t, r.chosen), Topology: c.topology}
				}
				r.override.Policy, r.override.CPUs = cpus.Exclusive, r.cpus
				w := node.Workload{ID: r.id, Class: node.LSR, Cgroup: node.CgroupPath("pods/" + string(r.id)), Overrides: node.Overrides{CPUs: r.override}}
				s.Workloads = append(s.Workloads, w)
				now := node.CPUs{}
				if i == 0 && c.cgroup != "" {
					now.Set = mustSet(t, c.cgroup)
				}
				s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = now
				if r.had != "" {
					had[r.id] = mustSet(t, r.had)
				}
			}
			before := owned(had)
			for tick := range 3 {
				g := Decide(facts.NodeCPUs{ReservedCPUs: mustSet(t, c.reserved)}, 0, before, s)
				id := c.runners[0].id
				if got := g.Text(id); got != c.want {
					t.Errorf("tick %d: %q\nwant %q", tick, got, c.want)
				}
				before = g.Held
			}
		})
	}
}

// TestTheNodeForgetsNoChoice lets the holder of the chosen CPUs end. The pod
// keeps the CPUs that the node chose, and the node still says why they are not
// those of the scheduler.
func TestTheNodeForgetsNoChoice(t *testing.T) {
	n := &crew{topo: machine(1, 2, 2, 2), runners: []runner{
		{id: "a", class: node.LSR, cpus: 1, override: node.CPUOverride{Chosen: &cpus.Choice{Policy: cpus.Exclusive, CPUs: mustSet(t, "3")}}},
	}, had: owned(map[node.WorkloadID]unit.CPUSet{"a": mustSet(t, "7")})}
	g := n.decide()
	want := "a has 1 CPU of its own, 1 beside others on a core, chosen by the node: its scheduler's choice, CPU 3, was not possible then"
	if g.own()["a"] != mustSet(t, "7") || g.Text("a") != want || g.Notes["a"].By != cpus.ByNode {
		t.Errorf("%v by %s: %q\nwant %q", g.own()["a"], g.Notes["a"].By, g.Text("a"), want)
	}
	if n := g.Notes["a"]; n.Because() != "its scheduler's choice, CPU 3, was not possible then" || n.Code() != cpus.ChoiceNotPossible {
		t.Errorf("the reason alone is %v: %q", n.Code(), n.Because())
	}
}

// TestTooFewCPUsHaveNumbers checks the words about claims that get no CPUs of
// their own, no seats or no pool.
func TestTooFewCPUsHaveNumbers(t *testing.T) {
	own := func(id node.WorkloadID, n int, bind cpus.Bind) node.Workload {
		return node.Workload{ID: id, Class: node.LSR, Overrides: node.Overrides{CPUs: node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: n, Bind: bind}}}}}
	}
	share := func(id node.WorkloadID, grade cpus.Policy, n int, request unit.MilliCPU) node.Workload {
		return node.Workload{ID: id, Class: node.LS, CPURequest: node.Some(request), Overrides: node.Overrides{CPUs: node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: grade, CPUs: n, CPU: request}}}}}
	}
	for name, c := range map[string]struct {
		works []node.Workload
		id    node.WorkloadID
		want  string
	}{
		"more than there are": {[]node.Workload{own("a", 8, 0)}, "a", "a requests 8 CPUs of its own, has none and is treated as LS: 7 of 8 open ones can be given, because 1 must stay open"},
		"beside services": {[]node.Workload{own("a", 6, 0), {ID: "web", Class: node.LS, CPURequest: node.Some(unit.MilliCPU(2500))}}, "a",
			"a requests 6 CPUs of its own, has none and is treated as LS: 5 of 8 open ones can be given, because services without own CPUs request 3"},
		"whole cores": {[]node.Workload{own("a", 3, cpus.OnlyWhole)}, "a",
			"a requests 3 CPUs of its own, has none and is treated as LS: 3 asked as whole cores, and a core has 2 CPUs"},
		"seats": {[]node.Workload{own("a", 6, 0), share("s", cpus.Shared, 4, 1000)}, "s",
			"s has no seats and shares all open CPUs: 4 seats for a request of 1000m asked, 2 open"},
		"a pool": {[]node.Workload{own("a", 3, 0), share("p", cpus.Pool, 0, 3000), share("q", cpus.Pool, 0, 2500)}, "q",
			"q has no pool and shares all open CPUs: a request of 2500m asked, 2000m left: 5 open, of which p requests 3000m"},
	} {
		t.Run(name, func(t *testing.T) {
			s := node.Snapshot{Topology: machine(1, 2, 2, 2), Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
			for _, w := range c.works {
				w.Cgroup = node.CgroupPath(w.ID)
				s.Workloads = append(s.Workloads, w)
				s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
			}
			had := Held{}
			if name == "seats" || name == "a pool" { // a was there before the services
				had = owned(map[node.WorkloadID]unit.CPUSet{"a": mustSet(t, map[string]string{"seats": "0-5", "a pool": "0-2"}[name])})
			}
			if got := Decide(facts.NodeCPUs{}, 0, had, s).Text(c.id); got != c.want {
				t.Errorf("%q\nwant %q", got, c.want)
			}
		})
	}
}

// TestTheNodeSaysWhyItSeats checks the words about seats and pools that the node
// chose itself.
func TestTheNodeSaysWhyItSeats(t *testing.T) {
	for name, c := range map[string]struct {
		chosen cpus.Choice
		want   string
	}{
		"a pool": {cpus.Choice{Policy: cpus.Pool, CPUs: mustSet(t, "0-3"), Domain: mustSet(t, "0-3")},
			"s has seats on 2 CPUs of one L3 cache, chosen by the node: its scheduler's choice is for a pool"},
		"another number": {cpus.Choice{Policy: cpus.Shared, CPUs: mustSet(t, "0-2"), Domain: mustSet(t, "0-3")},
			"s has seats on 2 CPUs of one L3 cache, chosen by the node: its scheduler's choice has 3 CPUs, and the pod asks for 2 now"},
		"CPUs that are gone": {cpus.Choice{Policy: cpus.Shared, CPUs: mustSet(t, "0-1"), Domain: mustSet(t, "0-9")},
			"s has seats on 2 CPUs of one L3 cache, chosen by the node: its scheduler's choice has CPUs 8-9, not online"},
		"the same": {cpus.Choice{Policy: cpus.Shared, CPUs: mustSet(t, "0-1"), Domain: mustSet(t, "0-7")},
			"s has seats on 2 CPUs of one NUMA node, as its scheduler chose"},
	} {
		w := node.Workload{ID: "s", Class: node.LS, Cgroup: "s", Overrides: node.Overrides{CPUs: node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Shared, CPUs: 2, CPU: 500}}, Chosen: &c.chosen}}}
		s := node.Snapshot{Topology: machine(1, 2, 2, 2), Workloads: []node.Workload{w}, Knobs: node.Knobs{Now: map[node.Knob]node.Value{{Cgroup: "s", File: node.FileCPUs}: node.CPUs{}}}}
		had := Held{}
		for tick := range 2 {
			g := Decide(facts.NodeCPUs{}, 0, had, s)
			if got := g.Text("s"); got != c.want {
				t.Errorf("%s, tick %d: %q\nwant %q", name, tick, got, c.want)
			}
			had = g.Held
		}
	}
}

// TestSeatsThatAreShortAreSaidOnce gives a pod that asks for three seats the one
// that is open, with and without a choice of its scheduler.
func TestSeatsThatAreShortAreSaidOnce(t *testing.T) {
	one := mustSet(t, "3")
	for name, c := range map[string]struct {
		chosen *cpus.Choice
		want   string
	}{
		"before a resize": {&cpus.Choice{Policy: cpus.Shared, CPUs: one, Domain: mustSet(t, "0-3")},
			"s has seats on 1 CPU of one L3 cache, chosen by the node: its scheduler's choice has 1 CPU, and the pod asks for 3 now, but no more CPUs are open there"},
		"chosen": {&cpus.Choice{Policy: cpus.Shared, CPUs: mustSet(t, "1-3"), Domain: mustSet(t, "0-3")},
			"s has seats on 1 CPU of one L3 cache, as its scheduler chose; the pod asks for 3, but no more CPUs are open there"},
		"not chosen": {nil, "s has seats on 1 CPU of one L3 cache, chosen by the node: no scheduler chose CPUs for it; the pod asks for 3, but no more CPUs are open there"},
	} {
		a := node.Workload{ID: "a", Class: node.LSR, Cgroup: "a", Overrides: node.Overrides{CPUs: node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 3}}}}}
		w := node.Workload{ID: "s", Class: node.LS, Cgroup: "s", Overrides: node.Overrides{CPUs: node.CPUOverride{Pod: "u", PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Shared, CPUs: 3, CPU: 500}}, Chosen: c.chosen}}}
		s := node.Snapshot{Topology: machine(1, 2, 2, 2), Workloads: []node.Workload{a, w}, Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
		for _, x := range s.Workloads {
			s.Knobs.Now[node.Knob{Cgroup: x.Cgroup, File: node.FileCPUs}] = node.CPUs{}
		}
		had := owned(map[node.WorkloadID]unit.CPUSet{"a": mustSet(t, "0-2")})
		had.Allocations["s"] = cpus.Allocation{Policy: cpus.Shared, CPUs: one, Domain: mustSet(t, "0-3"), CPU: 500}
		if got := Decide(facts.NodeCPUs{}, 0, had, s).Text("s"); got != c.want {
			t.Errorf("%s: %q\nwant %q", name, got, c.want)
		}
	}
}
