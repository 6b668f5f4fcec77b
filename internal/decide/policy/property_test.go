package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/memory"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var classes = []node.Class{node.LSE, node.LSR, node.LS, node.LS, node.LS, node.System}

// anyTopology returns a topology with no more CPUs than the limit. It may have
// SMT, with adjacent or distant numbers of siblings, and some CPUs may be
// offline.
func anyTopology(rnd *rand.Rand, most int) node.Topology {
	sizes := []int{1, 2, 3, 4, 8, 12, 24, 48, 104, 256, 1024}
	n := min(sizes[rnd.IntN(len(sizes))], most)
	smt := 1 << rnd.IntN(3)
	t := machine(n, smt, 1+rnd.IntN(max(n/4, 1)), 1+rnd.IntN(max(n/8, 1)))
	if rnd.IntN(3) == 0 { // sibling numbers differ by half the number of CPUs
		cores := (n + smt - 1) / smt
		for i := range t.CPUs {
			t.CPUs[i].Core = node.CoreID(i % cores)
		}
	}
	if rnd.IntN(3) == 0 {
		kept := t.CPUs[:0]
		for i, c := range t.CPUs {
			if i == 0 || rnd.IntN(5) > 0 {
				kept = append(kept, c)
			}
		}
		t.CPUs = kept
	}
	return t
}

func anySet(rnd *rand.Rand, of unit.CPUSet) unit.CPUSet {
	var s unit.CPUSet
	share := 1 + rnd.IntN(6)
	for c := range of.All() {
		if rnd.IntN(8) < share {
			s = s.With(c)
		}
	}
	return s
}

// anyScene returns a node with random work and a random configuration of CPU
// suppress.
func anyScene(rnd *rand.Rand, most, version int) *scene {
	topo := anyTopology(rnd, most)
	n := newScene(topo, version)
	n.config = Config{CPUQOS: isolation.Config{Enable: rnd.IntN(2) == 0}, NodeCPUs: facts.NodeCPUs{LendLSR: rnd.IntN(3) == 0}, Suppress: suppress.Config{
		Enable: true, ThresholdPercent: unit.Percent(rnd.IntN(101)),
		Policy: []suppress.Policy{suppress.ByQuota, suppress.ByCPUSet, suppress.ByCPUSet, ""}[rnd.IntN(4)],
	}}
	n.config.Seats.Enable = rnd.IntN(2) == 0
	if rnd.IntN(2) == 0 {
		n.config.Suppress.MinPercent = unit.Percent(rnd.IntN(101))
	}
	for i := range rnd.IntN(6) {
		w := node.Workload{ID: node.WorkloadID(fmt.Sprint("w", i)), Class: classes[rnd.IntN(len(classes))]}
		w.ContentionRoot = node.CgroupPath(w.Class)
		w.Cgroup = w.ContentionRoot.Join(string(w.ID))
		if rnd.IntN(2) == 0 {
			w.Objective.RunQueueDelay = node.Some(time.Duration(1+rnd.IntN(10000)) * time.Microsecond)
		}
		n.add(w)
		if w.Class != node.System && rnd.IntN(2) == 0 {
			if set := anySet(rnd, topo.All()); !set.Empty() {
				n.snap.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{Set: set}
			}
		}
	}
	for i := range 1 + rnd.IntN(3) {
		meet := node.CgroupPath(fmt.Sprint("be", rnd.IntN(2)))
		w := node.Workload{ID: node.WorkloadID(fmt.Sprint("b", i)), Class: node.BE, Cgroup: meet.Join(fmt.Sprint(i)), ContentionRoot: meet}
		if rnd.IntN(4) == 0 {
			w.CPULimit = node.Some(unit.MilliCPU(1 + rnd.IntN(4000)))
		}
		n.add(w)
	}
	return n
}

// anySpell returns random use for every workload. If the kernel has per-CPU
// counters, some workloads get them.
func (n *scene) anySpell(rnd *rand.Rand) spell {
	p := spell{
		every: time.Duration(1+rnd.IntN(2000)) * time.Millisecond,
		use:   map[node.WorkloadID]unit.MilliCPU{}, on: map[node.WorkloadID]unit.CPUSet{}, missing: map[node.WorkloadID]bool{},
		blind: rnd.IntN(20) == 0,
	}
	all := n.snap.Topology.All()
	for _, w := range n.snap.Workloads {
		p.use[w.ID] = unit.MilliCPU(rnd.IntN(1 + all.Len()*1000/len(n.snap.Workloads)))
		p.missing[w.ID] = rnd.IntN(40) == 0
		if w.Objective.RunQueueDelay.Known() {
			p.waits = append(p.waits, waiting{id: w.ID, kind: []string{"waits", "waits", "waits", "turns"}[rnd.IntN(4)], counts: map[time.Duration]uint64{
				time.Duration(rnd.IntN(1000)) * time.Microsecond: rnd.Uint64N(10000), time.Duration(rnd.IntN(100)) * time.Millisecond: rnd.Uint64N(100),
			}})
		}
		if on := anySet(rnd, all); n.snap.Knobs.Kernel.CgroupVersion == 1 && !on.Empty() {
			p.on[w.ID] = on
		}
	}
	return p
}

// allowance returns how much CPU BE work may use according to the knobs, and on
// which CPUs. An empty set means all CPUs.
func (n *scene) allowance() (unit.MilliCPU, unit.CPUSet) {
	var quota unit.MilliCPU
	var cpus unit.CPUSet
	all := n.snap.Topology.All()
	for _, m := range facts.LayoutOf(n.snap).Roots {
		q := n.snap.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUMax}].(node.CPUMax)
		set := n.snap.Knobs.Now[node.Knob{Cgroup: m, File: node.FileCPUs}].(node.CPUs).Set
		if set.Empty() {
			set = all
		}
		cpus = cpus.Union(set)
		if facts.IsQuota(q) {
			quota += facts.MilliOf(q)
		} else {
			quota = math.MaxInt32
		}
	}
	return min(quota, unit.CPUs(cpus.Len())), cpus
}

// TestBudgetHolds runs random nodes with random work. The set of CPUs of BE
// work must never be empty, BE work must get at most its budget, and it must
// grow slowly. The kernel must refuse nothing, and every knob must have one
// owner.
func TestBudgetHolds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	for try := range 160 {
		version := 1 + try%2
		most := 104
		if try%40 < 2 {
			most = 1024
		}
		n := anyScene(rnd, most, version)
		if try%3 == 0 {
			n.owners(rnd)
		}
		if try%4 == 1 {
			if set := anySet(rnd, n.snap.Topology.All()); set != n.snap.Topology.All() {
				n.config.NodeCPUs.ReservedCPUs = set
			}
		}
		n.pass(n.anySpell(rnd))
		n.decide(t)
		for turn := range 12 {
			had, hadCPUs := n.allowance()
			spell := n.anySpell(rnd)
			n.pass(spell)
			before := n.state
			n.checkWants(t)
			n.decide(t)
			has, cpus := n.allowance()
			b := suppress.BudgetOf(n.config.Suppress, n.config.NodeCPUs, n.state.Use, n.snap, n.config.NodeCPUs.Counted(n.snap))
			slack := b.Capacity.Percent(suppress.Deadband) + leastQuota*4
			if version == 1 && hadCPUs.Len() == 1 && cpus.Len() == 2 {
				slack += unit.CPUs(1) // during an exchange on cgroup v1 the set has both CPUs
			}
			what := fmt.Sprintf("try %d, tick %d, v%d, %d CPUs, %+v", try, turn, version, len(n.snap.Topology.CPUs), n.config.Suppress)
			if cpus.Empty() || has > b.May+slack {
				t.Fatalf("%s: BE may use %v of %v, the budget is %v (%s)", what, has, cpus, b.May, b.Reason)
			}
			gain := b.Save(before.Growth, spell.every, true) + slack
			if has > max(had, roundUp(b.Least), unit.CPUs(1))+gain {
				t.Fatalf("%s: BE grew from %v to %v in %v", what, had, has, spell.every)
			}
			if t.Failed() {
				t.Fatal(what)
			}
		}
	}
}

// leastQuota is the smallest quota of the kernel for the default period.
const leastQuota = unit.MilliCPU(node.MinQuota * 1000 / node.DefaultPeriod)

// roundUp rounds m up to whole CPUs.
func roundUp(m unit.MilliCPU) unit.MilliCPU { return (m + 999) / 1000 * 1000 }

// checkWants checks the properties that the wants of every decision must have.
func (n *scene) checkWants(t *testing.T) {
	t.Helper()
	st, wants := Decide(n.config, n.state, n.snap)
	again, same := Decide(n.config, n.state, n.snap)
	if diff := cmp.Diff(wants, same, cmp.Comparer(func(a, b plan.Want) bool { return a == b })); diff != "" {
		t.Fatalf("the same input gave another output:\n%s", diff)
	}
	if diff := cmp.Diff(st, again, cmpopts.EquateEmpty(), cmp.Comparer(sameSet), cmp.AllowUnexported(node.Maybe[time.Duration]{}, node.Maybe[int64]{}, node.Maybe[int]{}, node.Maybe[unit.MilliCPU]{}),
		cmp.Comparer(func(a, b pick.Map) bool { return reflect.DeepEqual(a, b) })); diff != "" {
		t.Fatalf("the same input gave another state:\n%s", diff)
	}
	lse := n.lse(st.CPUs).Union(n.config.NodeCPUs.ReservedCPUs)
	owner := map[node.Knob]plan.Owner{}
	files := Files(n.config, n.snap.Workloads)
	for _, w := range wants {
		// The snapshots of tenond have only the listed files. Here they have all.
		if w.Intent == plan.Set && !slices.Contains(files, w.Knob.File) {
			t.Fatalf("%s sets %v, but Files does not list its file", w.Owner, w.Knob)
		}
		if other, twice := owner[w.Knob]; twice {
			t.Fatalf("%v is wanted by %s and %s", w.Knob, other, w.Owner)
		}
		owner[w.Knob] = w.Owner
		if w.Owner == 0 || w.Reason == "" || (w.Intent == plan.Set) != (w.Value != nil) {
			t.Fatalf("incomplete: %+v", w)
		}
		if w.Intent != plan.Set || w.Knob.File != node.FileCPUs || !w.BE {
			continue
		}
		set := w.Value.(node.CPUs).Set
		had := n.snap.Knobs.Now[w.Knob].(node.CPUs).Set
		if set.Empty() || !n.snap.Topology.All().Contains(set) {
			t.Fatalf("%v gets CPUs %q", w.Knob, set)
		}
		// On cgroup v1, the exchange of two disjoint sets takes two ticks.
		// After the first tick, the set may still contain CPUs of LSE.
		onTheWay := !had.Empty() && !had.Contains(set) && set.Contains(had)
		// A release in steps gives back the set from before Tenon and some more. No
		// policy gives more than that set.
		if before, touched := n.snap.Knobs.Before[w.Knob].(node.CPUs); touched && set.Contains(before.Set) && set != before.Set {
			continue
		}
		// If every CPU here is LSE's, a quota bounds BE, and seats only narrow its set.
		if room := hold.RoomBefore(n.snap.Knobs, w.Knob.Cgroup, n.snap.Topology.All()); lse.Contains(room) && room.Contains(set) {
			continue
		}
		if got := set.Intersect(lse); !got.Empty() && !(onTheWay && had.Contains(got)) {
			t.Fatalf("%v gets %v of what is LSE's or reserved: %v", w.Knob, got, lse)
		}
	}
}

func sameSet(a, b unit.CPUSet) bool { return a == b }

// lse returns the CPUs of LSE work, if it is bound to CPUs or has exclusive
// ones.
func (n *scene) lse(held hold.Held) unit.CPUSet {
	var all unit.CPUSet
	for _, w := range n.snap.Workloads {
		if set, own := held.Exclusive(w.ID); own && w.Class == node.LSE {
			all = all.Union(set)
		} else if set, bound := hold.BoundTo(n.snap.Knobs, &w, n.snap.Topology.All()); bound && w.Class == node.LSE {
			all = all.Union(set)
		}
	}
	return all
}

// TestMoreLSUseNeverGivesBEMore runs the same history twice. In the last spell
// of the second run, one service uses more CPU. BE must not get more CPU than
// in the first run.
func TestMoreLSUseNeverGivesBEMore(t *testing.T) {
	for seed := range uint64(150) {
		play := func(more unit.MilliCPU) (*scene, unit.MilliCPU) {
			rnd := rand.New(rand.NewPCG(seed, 13))
			n := anyScene(rnd, 104, 2)
			n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"})
			for range 3 {
				n.pass(n.anySpell(rnd))
				n.decide(t)
			}
			p := n.anySpell(rnd)
			p.blind, p.missing = false, nil
			p.use["web"] += more
			n.pass(p)
			n.decide(t)
			has, _ := n.allowance()
			return n, has
		}
		rnd := rand.New(rand.NewPCG(seed, 14))
		n, less := play(0)
		_, more := play(unit.MilliCPU(rnd.IntN(4000)))
		if slack := unit.CPUs(len(n.snap.Topology.CPUs)).Percent(suppress.Deadband); more > less+slack {
			t.Errorf("seed %d, %+v: BE may use %v, and %v when a service needs more", seed, n.config.Suppress, less, more)
		}
	}
}

// TestJitterMovesNothing checks that a change of use smaller than the deadband
// moves no CPU of BE work and causes no write.
func TestJitterMovesNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	for _, version := range []int{1, 2} {
		n := newScene(machine(104, 2, 4, 2), version)
		n.config.Suppress = suppress.Config{Enable: true, ThresholdPercent: 65, Policy: suppress.ByCPUSet}
		n.add(node.Workload{ID: "web", Class: node.LS, Cgroup: "ls/web", ContentionRoot: "ls"})
		n.add(node.Workload{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
		steps := 0
		for turn := range 300 {
			wave := unit.MilliCPU(rnd.IntN(400))
			p := spell{every: time.Second, use: map[node.WorkloadID]unit.MilliCPU{"web": 20400 + wave, "job": 30000}}
			if version == 1 {
				p.on = map[node.WorkloadID]unit.CPUSet{"web": machine(40, 2, 1, 1).All()}
			}
			n.pass(p)
			if did := n.decide(t); turn > 30 {
				steps += len(did)
			}
		}
		if steps > 0 {
			t.Errorf("v%d: %d writes while nothing happened", version, steps)
		}
	}
}

// TestFewCPUsChangeHands places services at random. In each tick, BE may
// exchange no more CPUs than the change of the budget and the limit on swaps
// allow.
func TestFewCPUsChangeHands(t *testing.T) {
	rnd := rand.New(rand.NewPCG(17, 18))
	for range 40 {
		n := anyScene(rnd, 256, 2)
		n.config.Suppress.Policy = suppress.ByCPUSet
		swaps := max(int(unit.CPUs(len(n.snap.Topology.CPUs)).Percent(suppress.Growth)/unit.CPUs(1)), 2)
		var had unit.CPUSet
		for turn := range 20 {
			p := n.anySpell(rnd)
			for id := range p.use { // with per-CPU counters, as on v1
				p.on[id] = unit.CPUSetOf(n.snap.Topology.CPUs[0].ID).Union(anySet(rnd, n.snap.Topology.All()))
			}
			n.pass(p)
			n.decide(t)
			_, has := n.allowance()
			if lost, fewer := had.Minus(has).Len(), had.Len()-has.Len(); turn > 2 && lost > max(fewer, 0)+swaps {
				t.Fatalf("%d CPUs: from %v to %v", len(n.snap.Topology.CPUs), had, has)
			}
			had = has
		}
	}
}

// TestNothingPanicsAtTheEdges decides on snapshots in which all optional inputs
// are missing.
func TestNothingPanicsAtTheEdges(t *testing.T) {
	be := node.Workload{ID: "be", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"}
	lse := node.Workload{ID: "lse", Class: node.LSE, Cgroup: "lse", ContentionRoot: "lse"}
	knob := func(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileCPUs} }
	for name, s := range map[string]node.Snapshot{
		"nothing":          {},
		"no CPU":           {Workloads: []node.Workload{be}},
		"no knob":          {Topology: machine(4, 2, 1, 1), Workloads: []node.Workload{be}},
		"no meet":          {Topology: machine(4, 2, 1, 1), Workloads: []node.Workload{{ID: "x", Class: node.BE, Cgroup: "a/b"}}},
		"the root":         {Topology: machine(4, 2, 1, 1), Workloads: []node.Workload{{ID: "x", Class: node.BE}, {ID: "y", Class: node.LS}}},
		"a meet elsewhere": {Topology: machine(4, 2, 1, 1), Workloads: []node.Workload{{ID: "x", Class: node.BE, Cgroup: "a/b", ContentionRoot: "c"}}},
		"a set of other CPUs": {Topology: machine(1, 1, 1, 1), Workloads: []node.Workload{be, lse}, Knobs: node.Knobs{Now: map[node.Knob]node.Value{
			knob("be"): node.CPUs{Set: unit.CPUSetOf(9)}, knob("lse"): node.CPUs{Set: unit.CPUSetOf(9)}}}},
		"one CPU, and it is LSE's": {Topology: machine(1, 1, 1, 1), Workloads: []node.Workload{be, lse}, Knobs: node.Knobs{Now: map[node.Knob]node.Value{
			knob("be"): node.CPUs{}, knob("lse"): node.CPUs{Set: unit.CPUSetOf(0)}}}},
		"counters of CPUs that cannot be": {Topology: machine(2, 1, 1, 1), Workloads: []node.Workload{{ID: "x", Class: node.LS, Cgroup: "x",
			Usage: node.Usage{PerCPU: map[unit.CPU]time.Duration{-1: 1, unit.MaxCPUs: 1}}}, be}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Capabilities = node.Capabilities{}
			for _, m := range append(isolationFeatures(), node.FeatureHardwareSMT) {
				s.Capabilities[m] = node.Answer{Verdict: node.Yes}
			}
			for i := range 3 * len(node.Mechanisms) {
				mechanism, version := node.Mechanisms[i/3], i%3
				for _, p := range []suppress.Policy{suppress.ByQuota, suppress.ByCPUSet, ""} {
					c := Config{CPUQOS: isolation.Config{Enable: true, Mechanism: mechanism}, Suppress: suppress.Config{Enable: true, ThresholdPercent: 65, Policy: p},
						Memory: memory.Config{Classes: map[node.Class]memory.Shares{node.LS: {LowPercent: 100, ThrottlingPercent: 80}}}}
					s.Knobs.Kernel.CgroupVersion = version
					s.Busy = map[unit.CPU]time.Duration{0: 0}
					var st State
					for turn := range 3 {
						s.At = time.Unix(int64(turn), 0)
						s.Isolation.LSOn = map[unit.CPU]time.Duration{-1: time.Duration(turn), 0: time.Duration(turn) * time.Second, unit.MaxCPUs: math.MaxInt64}
						st, _ = Decide(c, st, s)
					}
					suppress.SafeBounds(c.Suppress, c.NodeCPUs, s)
				}
			}
		})
	}
}
