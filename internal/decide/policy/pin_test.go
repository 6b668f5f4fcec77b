package policy

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// anyClaim adds a workload that requests exclusive CPUs. Below its cgroup there
// are other cgroups.
func (n *scene) anyClaim(rnd *rand.Rand, name string) {
	w := node.Workload{
		ID: node.WorkloadID(name), Class: []node.Class{node.LSE, node.LSR}[rnd.IntN(2)], ContentionRoot: "ls",
		Priority: rnd.IntN(3), CPURequest: node.Some(unit.CPUs(1 + rnd.IntN(max(len(n.snap.Topology.CPUs)/2, 1)))),
	}
	if rnd.IntN(8) == 0 {
		w.CPURequest = node.Some(unit.MilliCPU(1 + rnd.IntN(4000)))
	}
	w.Cgroup = w.ContentionRoot.Join(name)
	n.add(w)
	for i := range rnd.IntN(3) {
		n.makeGroup(w.Cgroup.Join(fmt.Sprint(i)))
	}
}

// TestOwnCPUsAreExclusive starts and ends workloads with exclusive CPUs on
// random nodes. The exclusive sets must never overlap or change. No other LS
// workload may have a CPU of such a set, and BE work may have no CPU of LSE.
// Some CPU must always be shared, the kernel must refuse no write, and unused
// sets must be released. TENON_TEST_LONG=1 tries more nodes.
func TestOwnCPUsAreExclusive(t *testing.T) {
	tries := 50
	if os.Getenv("TENON_TEST_LONG") != "" {
		tries = 400
	}
	rnd := rand.New(rand.NewPCG(31, 32))
	for try := range tries {
		version := 1 + try%2
		most := 104
		if try%50 < 2 {
			most = 1024
		}
		n := anyScene(rnd, most, version)
		before := map[node.Knob]node.Value{}
		had := map[node.WorkloadID]unit.CPUSet{}
		for turn := range 14 {
			switch rnd.IntN(4) {
			case 0:
				n.anyClaim(rnd, fmt.Sprint("own", try, ".", turn))
			case 1:
				if i := rnd.IntN(len(n.snap.Workloads)); n.snap.Workloads[i].CPURequest.Known() {
					n.snap.Workloads = append(n.snap.Workloads[:i:i], n.snap.Workloads[i+1:]...)
				}
			case 2:
				if rnd.IntN(3) == 0 {
					n.state = State{}
				}
			}
			for k, v := range n.snap.Knobs.Now {
				if _, known := before[k]; !known {
					before[k] = v
				}
			}
			n.pass(n.anySpell(rnd))
			n.checkWants(t)
			was := n.sets()
			n.decide(t)
			what := fmt.Sprintf("try %d, tick %d, v%d, %d CPUs", try, turn, version, len(n.snap.Topology.CPUs))
			had = n.checkPins(t, what, had, was)
			if t.Failed() {
				t.Fatal(what)
			}
		}
		n.config, n.snap.Workloads = Config{}, nil
		for range 3 { // on cgroup v1 an exchange takes one more tick
			n.pass(n.anySpell(rnd))
			n.decide(t)
		}
		for k, v := range before {
			if n.snap.Knobs.Now[k] != v {
				t.Fatalf("try %d: %v was %v and is left at %v", try, k, v, n.snap.Knobs.Now[k])
			}
		}
	}
}

// sets returns the CPUs of all cgroups.
func (n *scene) sets() map[node.CgroupPath]unit.CPUSet {
	all := map[node.CgroupPath]unit.CPUSet{}
	for k, v := range n.snap.Knobs.Now {
		if k.File == node.FileCPUs {
			all[k.Cgroup] = v.(node.CPUs).Set
		}
	}
	return all
}

// checkPins checks the sets of all cgroups, and returns the exclusive CPUs of
// each workload. On cgroup v1 an exchange of sets takes two ticks. After the
// first one, a set may still contain CPUs that it has to give up.
func (n *scene) checkPins(t *testing.T, what string, had map[node.WorkloadID]unit.CPUSet, was map[node.CgroupPath]unit.CPUSet) map[node.WorkloadID]unit.CPUSet {
	t.Helper()
	now := n.sets()
	wrong := func(p node.CgroupPath, over unit.CPUSet) bool {
		return !over.Empty() && (n.snap.Knobs.Kernel.CgroupVersion == 2 || !was[p].Contains(over))
	}
	var taken unit.CPUSet
	for _, w := range n.snap.Workloads {
		set, own := n.state.CPUs.Exclusive(w.ID)
		if !own {
			continue
		}
		if !set.Intersect(taken).Empty() {
			t.Fatalf("%s: %s has %v, of which others have %v", what, w.ID, set, set.Intersect(taken))
		}
		if before, known := had[w.ID]; known && before != set {
			t.Fatalf("%s: %s was moved from %v to %v", what, w.ID, before, set)
		}
		if want := w.CPURequest.Or(0); unit.CPUs(set.Len()) != want {
			t.Fatalf("%s: %s asks for %v and has %v", what, w.ID, want, set)
		}
		taken = taken.Union(set)
		if !now[w.Cgroup].Contains(set) || wrong(w.Cgroup, now[w.Cgroup].Minus(set)) {
			t.Fatalf("%s: %s is to have %v and has %v", what, w.ID, set, now[w.Cgroup])
		}
		for p, cpus := range now {
			if p != w.Cgroup && w.Cgroup.Contains(p) && (wrong(p, cpus.Minus(set)) || !now[w.Cgroup].Contains(cpus)) {
				t.Fatalf("%s: %s is to have %v and %s below it has %v", what, w.ID, set, p, cpus)
			}
		}
	}
	if n.snap.Topology.All().Minus(taken).Empty() {
		t.Fatalf("%s: no shared CPU is left", what)
	}
	for _, w := range n.snap.Workloads {
		if _, own := n.state.CPUs.Exclusive(w.ID); own || w.Class != node.LS || taken.Empty() {
			continue
		}
		set := now[w.Cgroup]
		if set.Empty() { // cgroup v2: all
			set = n.snap.Topology.All()
		}
		room := hold.RoomBefore(n.snap.Knobs, w.Cgroup, n.snap.Topology.All())
		if !room.Minus(taken).Empty() && wrong(w.Cgroup, set.Intersect(taken)) {
			t.Fatalf("%s: %s has %q, and %v are exclusive CPUs of others", what, w.ID, set, taken)
		}
	}
	has := map[node.WorkloadID]unit.CPUSet{}
	for id := range n.state.CPUs.Allocations {
		if set, own := n.state.CPUs.Exclusive(id); own {
			has[id] = set
		}
	}
	return has
}
