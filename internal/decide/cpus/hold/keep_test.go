package hold

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A runner is a workload of LSR or LSE on a machine with an agent.
type runner struct {
	id       node.WorkloadID
	class    node.Class
	priority int
	cpus     int
	override node.CPUOverride
	had      string // the CPUs of the last tick
	chosen   string // the choice of a scheduler
}

// A crew is the workloads of a machine. written holds the CPUs in their knobs.
type crew struct {
	topo     node.Topology
	runners  []runner
	reserved unit.CPUSet
	had      Held
	written  map[node.WorkloadID]unit.CPUSet
}

func (n *crew) decide() Grants {
	s := node.Snapshot{Topology: n.topo, Knobs: node.Knobs{Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}}
	for _, r := range n.runners {
		w := node.Workload{ID: r.id, Class: r.class, Priority: r.priority, Cgroup: node.CgroupPath("pods/" + string(r.id)), Overrides: node.Overrides{CPUs: r.override}}
		w.Overrides.CPUs.Policy, w.Overrides.CPUs.CPUs = cpus.Exclusive, r.cpus
		s.Workloads = append(s.Workloads, w)
		knob := node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}
		s.Knobs.Now[knob] = node.CPUs{}
		if set := n.written[r.id]; !set.Empty() {
			s.Knobs.Now[knob], s.Knobs.Before[knob] = node.CPUs{Set: set}, node.CPUs{}
		}
	}
	return Decide(facts.NodeCPUs{ReservedCPUs: n.reserved}, 0, n.had, s)
}

// TestAGrowerTakesNoCPUThatIsHeld changes the demands of workloads that own
// CPUs. A workload whose demand stays keeps its CPUs.
func TestAGrowerTakesNoCPUThatIsHeld(t *testing.T) {
	small, large := machine(1, 1, 2, 2), machine(1, 1, 4, 2)
	whole := node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Bind: cpus.OnlyWhole}}}
	for name, c := range map[string]struct {
		topo     node.Topology
		runners  []runner
		reserved string
		want     map[node.WorkloadID]string
	}{
		"it grows beside what others hold": {topo: small, runners: []runner{
			{id: "a", cpus: 2, had: "0"}, {id: "b", cpus: 1, had: "1"}, {id: "c", cpus: 1, had: "3"},
		}, want: map[node.WorkloadID]string{"a": "0", "b": "1", "c": "3"}},
		"it grows by what is open": {topo: large, runners: []runner{
			{id: "a", cpus: 2, had: "0"}, {id: "b", cpus: 1, had: "1"}, {id: "c", cpus: 1, had: "3"},
		}, want: map[node.WorkloadID]string{"a": "0,2", "b": "1", "c": "3"}},
		"a higher class and priority take nothing": {topo: small, runners: []runner{
			{id: "a", class: node.LSE, priority: 9, cpus: 3, had: "0"}, {id: "b", cpus: 2, had: "1-2"},
		}, want: map[node.WorkloadID]string{"a": "0", "b": "1-2"}},
		"two grow, and both keep what they have": {topo: large, runners: []runner{
			{id: "a", cpus: 6, had: "0"}, {id: "b", cpus: 2, had: "1"},
		}, want: map[node.WorkloadID]string{"a": "0,3-7", "b": "1"}},
		"of two that grow LSE is first": {topo: small, runners: []runner{
			{id: "a", cpus: 2, had: "0"}, {id: "b", class: node.LSE, cpus: 2, had: "1"},
		}, want: map[node.WorkloadID]string{"a": "0", "b": "1,3"}},
		"it grows by what another gives up": {topo: small, runners: []runner{
			{id: "a", cpus: 2, had: "0"}, {id: "b", cpus: 1, had: "1-2"},
		}, want: map[node.WorkloadID]string{"a": "0-1", "b": "2"}},
		"a choice of CPUs that are held is refused": {topo: small, runners: []runner{
			{id: "a", cpus: 1, chosen: "1"}, {id: "b", cpus: 2, had: "1"},
		}, want: map[node.WorkloadID]string{"a": "3", "b": "0-1"}},
		"the choice for less than it demands is refused": {topo: small, runners: []runner{
			{id: "a", cpus: 2, had: "0", chosen: "0"}, {id: "b", cpus: 1, had: "1", chosen: "1"},
		}, want: map[node.WorkloadID]string{"a": "0,3", "b": "1"}},
		"the choice for less takes nothing from others": {topo: small, runners: []runner{
			{id: "a", cpus: 2, had: "0", chosen: "0"}, {id: "b", cpus: 1, had: "1"}, {id: "c", cpus: 1, had: "2"},
		}, want: map[node.WorkloadID]string{"a": "0", "b": "1", "c": "2"}},
		"whole cores": {topo: large, runners: []runner{
			{id: "a", cpus: 4, had: "0-1", override: whole}, {id: "b", cpus: 2, had: "2-3", override: whole}, {id: "c", cpus: 2, had: "4-5", override: whole},
		}, want: map[node.WorkloadID]string{"a": "0-1", "b": "2-3", "c": "4-5"}},
		"a reserved CPU is given up, and the others are kept": {topo: small, reserved: "0", runners: []runner{
			{id: "a", cpus: 2, had: "0,2"}, {id: "b", cpus: 1, had: "1"},
		}, want: map[node.WorkloadID]string{"a": "2", "b": "1"}},
		"of two that both do not fit any more the first keeps": {topo: small, reserved: "0", runners: []runner{
			{id: "a", cpus: 2, had: "0-1"}, {id: "b", class: node.LSE, cpus: 2, had: "2-3"},
		}, want: map[node.WorkloadID]string{"b": "2-3"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := &crew{topo: c.topo, reserved: mustSet(t, c.reserved), written: map[node.WorkloadID]unit.CPUSet{}}
			had := map[node.WorkloadID]unit.CPUSet{}
			for _, r := range c.runners {
				if r.class == "" {
					r.class = node.LSR
				}
				if r.chosen != "" {
					r.override.Chosen = &cpus.Choice{Policy: cpus.Exclusive, CPUs: mustSet(t, r.chosen)}
				}
				if r.had != "" {
					had[r.id] = mustSet(t, r.had)
				}
				n.runners = append(n.runners, r)
			}
			n.written, n.had = had, owned(had)
			want := map[node.WorkloadID]unit.CPUSet{}
			for id, list := range c.want {
				want[id] = mustSet(t, list)
			}
			if g := n.decide(); !maps.Equal(g.own(), want) {
				t.Errorf("the workloads have %v, want %v\n%+v", g.own(), want, g.Notes)
			}
		})
	}
}

// TestAGrowerKeepsItsCPUsAfterARestart grows a workload while no agent runs. The
// next agent knows only what is written.
func TestAGrowerKeepsItsCPUsAfterARestart(t *testing.T) {
	n := &crew{topo: machine(1, 1, 2, 2), runners: []runner{
		{id: "a", class: node.LSR, cpus: 2}, {id: "b", class: node.LSR, cpus: 1},
	}, written: map[node.WorkloadID]unit.CPUSet{"a": mustSet(t, "0"), "b": mustSet(t, "1")}}
	g := n.decide()
	if a, b := g.own()["a"], g.own()["b"]; a.Len() != 2 || !a.Contains(mustSet(t, "0")) || b != mustSet(t, "1") {
		t.Errorf("the workloads have %v, want 0 and another CPU, and 1", g.own())
	}
}

// TestSharedCPUsAreNotKeptAfterARestart has a workload that got no own CPUs and
// runs on all open CPUs. The next agent must not count these as its own CPUs, and
// must not take CPUs from another workload for it.
func TestSharedCPUsAreNotKeptAfterARestart(t *testing.T) {
	n := &crew{topo: machine(1, 1, 4, 1), runners: []runner{
		{id: "a", class: node.LSR, cpus: 1}, {id: "b", class: node.LSR, cpus: 1}, {id: "late", class: node.LSE, cpus: 3},
	}, written: map[node.WorkloadID]unit.CPUSet{"a": mustSet(t, "0"), "b": mustSet(t, "1"), "late": mustSet(t, "2-3")}}
	for _, isolated := range []string{"", "3"} { // work without own CPUs does not get isolated ones
		n.topo.Isolated = mustSet(t, isolated)
		n.written["late"] = mustSet(t, "2-3").Minus(n.topo.Isolated)
		g := n.decide()
		if own := g.own(); own["a"] != mustSet(t, "0") || own["b"] != mustSet(t, "1") || !own["late"].Empty() {
			t.Errorf("isolated %q: the workloads have %v, want 0, 1 and nothing for late", isolated, own)
		}
	}
}

// TestNoGrowthMovesAnother runs random histories of workloads that start, end, grow and shrink, and of CPUs that become
// reserved. Each tick is decided twice: once as it is, and once without any growth. Workloads whose demand stayed must hold
// the same CPUs in both decisions. A workload that grows must hold all CPUs that it holds without growth.
func TestNoGrowthMovesAnother(t *testing.T) {
	rnd := rand.New(rand.NewPCG(87, 88))
	kept, grown := 0, 0
	for try := range 300 {
		n := &crew{topo: machine(1+rnd.IntN(2), 1+rnd.IntN(2), 1+rnd.IntN(4), 1+rnd.IntN(2)), had: owned(nil)}
		for i := range 40 {
			former := slices.Clone(n.runners)
			n.change(rnd, i)
			calm := *n
			calm.runners = slices.Clone(n.runners)
			for j := range calm.runners {
				for _, r := range former {
					if r.id == calm.runners[j].id {
						calm.runners[j].cpus = min(r.cpus, calm.runners[j].cpus)
					}
				}
			}
			g, without := n.decide(), calm.decide()
			for j, r := range n.runners {
				had := n.written[r.id]
				if had.Empty() || !n.reserved.Intersect(had).Empty() {
					continue // it is new, or it replaces CPUs like a workload that grows
				}
				grows := r.cpus > had.Len() // now, or it waits for more CPUs since an earlier tick
				switch now, then := g.Allocations[r.id].CPUs, without.Allocations[r.id].CPUs; {
				case !grows && r.cpus != calm.runners[j].cpus: // it held more than it demanded, as whole cores, and still does
				case !grows && now != then:
					t.Fatalf("try %d, step %d: %s has %v, and %v if no other grows\n%s", try, i, r.id, now, then, n)
				case grows && !now.Contains(then.Intersect(had)):
					t.Fatalf("try %d, step %d: %s has %v, and keeps %v if nothing grows\n%s", try, i, r.id, now, then, n)
				case grows && now.Len() > had.Len():
					grown++
				case !grows:
					kept++
				}
			}
			n.had, n.written = g.Held, g.own()
		}
	}
	if kept < 1000 || grown < 500 {
		t.Errorf("only %d workloads kept their CPUs, and %d grew", kept, grown)
	}
}

// change makes the changes before one tick.
func (n *crew) change(rnd *rand.Rand, step int) {
	online := len(n.topo.CPUs)
	for k := range 1 + rnd.IntN(3) {
		at := rnd.IntN(len(n.runners) + 1)
		switch isNew := at == len(n.runners); {
		case isNew:
			r := runner{
				id: node.WorkloadID(fmt.Sprintf("%c%d.%d", 'a'+rnd.IntN(26), step, k)), class: []node.Class{node.LSE, node.LSR}[rnd.IntN(2)],
				priority: rnd.IntN(3), cpus: 1 + rnd.IntN(max(online/3, 1)),
				override: node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Bind: cpus.Bind(rnd.IntN(5)), Exclusive: cpus.ExclusivePolicy(rnd.IntN(3))}}},
			}
			if first := rnd.IntN(online - r.cpus + 1); rnd.IntN(3) == 0 {
				var set unit.CPUSet
				for c := range r.cpus {
					set.Add(unit.CPU(first + c))
				}
				r.override.Chosen = &cpus.Choice{Policy: cpus.Exclusive, CPUs: set}
			}
			n.runners = append(n.runners, r)
		case rnd.IntN(4) == 0:
			n.runners = slices.Delete(slices.Clone(n.runners), at, at+1)
		default:
			n.runners[at].cpus = 1 + rnd.IntN(n.runners[at].cpus+2)
		}
	}
	if rnd.IntN(6) == 0 {
		n.reserved = unit.CPUSet{}
		if rnd.IntN(2) == 0 && online > 2 {
			n.reserved = unit.CPUSetOf(unit.CPU(rnd.IntN(online)))
		}
	}
}

func (n *crew) String() string {
	text := fmt.Sprintf("reserved %v, state kept %t\n", n.reserved, n.had.Allocations != nil)
	for _, r := range n.runners {
		text += fmt.Sprintf("%s %s priority %d demands %d, had %v: %+v\n", r.id, r.class, r.priority, r.cpus, n.written[r.id], r.override)
	}
	return text
}

// TestSharedCPUsAreKeptWhileTheirCPUSetCannotBeRead has seats and a pool in the
// second cache, although the first one has more room now. For one tick, the cpusets
// of both cannot be read. Both workloads must keep their CPUs, in this tick and in
// the next one. A workload that had no seats gets none in this tick.
func TestSharedCPUsAreKeptWhileTheirCPUSetCannotBeRead(t *testing.T) {
	s := node.Snapshot{Topology: machine(1, 2, 2, 2), Knobs: node.Knobs{Now: map[node.Knob]node.Value{}}}
	for id, r := range map[node.WorkloadID]cpus.Request{
		"new": {Policy: cpus.Shared, CPUs: 2, CPU: 500}, "pool": {Policy: cpus.Pool, CPU: 500}, "seats": {Policy: cpus.Shared, CPUs: 2, CPU: 500},
	} {
		s.Workloads = append(s.Workloads, node.Workload{ID: id, Class: node.LS, Cgroup: node.CgroupPath(id), Overrides: node.Overrides{CPUs: node.CPUOverride{Pod: string(id), PodRequest: cpus.PodRequest{Request: r}}}})
	}
	slices.SortFunc(s.Workloads, func(a, b node.Workload) int { return strings.Compare(string(a.ID), string(b.ID)) })
	domain := mustSet(t, "4-7")
	want := map[node.WorkloadID]cpus.Allocation{
		"seats": {Policy: cpus.Shared, CPUs: mustSet(t, "5,7"), Domain: domain, CPU: 500}, "pool": {Policy: cpus.Pool, CPUs: domain, Domain: domain, CPU: 500},
	}
	had := Held{Allocations: want}
	for tick, shown := range []bool{false, true} {
		if shown {
			for _, w := range s.Workloads {
				s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
			}
		}
		g := Decide(facts.NodeCPUs{}, 0, had, s)
		for id, a := range want {
			if g.Allocations[id] != a {
				t.Errorf("tick %d: %s has %+v, want %+v: %s", tick, id, g.Allocations[id], a, g.Text(id))
			}
		}
		if n := g.Notes["seats"]; (n.Code() == cpus.CPUSetMissing) == shown || n.Has != 2 {
			t.Errorf("tick %d: %+v", tick, n)
		}
		if n := g.Notes["new"]; (n.Code() == cpus.NoCPUSet) == shown || n.Refused() == shown {
			t.Errorf("tick %d: the new one: %+v", tick, n)
		}
		if tick == 0 && (g.Text("seats") != "seats keeps its seats: the files of its cpuset are missing now" || g.Text("pool") != "pool keeps its pool: the files of its cpuset are missing now") {
			t.Errorf("%q, %q", g.Text("seats"), g.Text("pool"))
		}
		had = g.Held
	}
}
