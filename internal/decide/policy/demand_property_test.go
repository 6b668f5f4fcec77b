package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// anyPod adds an LS workload that asks for CPUs of its own, seats or a pool. Below
// its cgroup there are other cgroups.
func (n *scene) anyPod(rnd *rand.Rand, name string) {
	most := max(len(n.snap.Topology.CPUs)/2, 1)
	r := cpus.Request{Policy: cpus.Policy(1 + rnd.IntN(3)), Within: cpus.Level(rnd.IntN(int(cpus.Levels))), Exclusive: cpus.ExclusivePolicy(rnd.IntN(3))}
	if r.Policy != cpus.Pool {
		r.CPUs = 1 + rnd.IntN(most)
	}
	if r.Policy != cpus.Exclusive {
		r.CPU = unit.MilliCPU(rnd.IntN(1000 * most))
	}
	w := node.Workload{ID: node.WorkloadID(name), Class: node.LS, ContentionRoot: "ls", CPURequest: node.Some(max(r.CPU, unit.CPUs(r.CPUs)))}
	w.Cgroup = w.ContentionRoot.Join(name)
	w.Overrides.CPUs = node.CPUOverride{Pod: name, PodRequest: cpus.PodRequest{Request: r, Grows: r.Policy == cpus.Pool && rnd.IntN(2) == 0}}
	n.add(w)
	for i := range rnd.IntN(3) {
		n.makeGroup(w.Cgroup.Join(fmt.Sprint(i)))
	}
}

// decideWithout decides and applies all steps while the cpusets in and below some
// cgroups cannot be read. The host leaves out such a knob, and its value from before.
func (n *scene) decideWithout(t *testing.T, hidden []node.CgroupPath) {
	t.Helper()
	isHidden := func(k node.Knob, _ node.Value) bool {
		return (k.File == node.FileCPUs || k.File == node.FileMems) && slices.ContainsFunc(hidden, func(p node.CgroupPath) bool { return p.Contains(k.Cgroup) })
	}
	s := n.snap
	s.Knobs.Now, s.Knobs.Before = maps.Clone(s.Knobs.Now), maps.Clone(s.Knobs.Before)
	maps.DeleteFunc(s.Knobs.Now, isHidden)
	maps.DeleteFunc(s.Knobs.Before, isHidden)
	n.state, n.wants = Decide(n.config, n.state, s)
	n.apply(t, plan.Diff(s.Knobs, n.wants))
}

// TestPodsKeepTheirCPUsOnAnyNode starts and ends pods with CPUs of their own, seats
// and pools on random nodes. In some ticks, the cpusets of a pod cannot be read, or
// the state is lost. The kernel must refuse no write. No CPU may have two owners. A
// pod whose cpuset cannot be read keeps what it has, except CPUs that others own now.
// In the end, each pod has its CPUs in its cpuset, and after the last pod every
// cpuset is as before.
func TestPodsKeepTheirCPUsOnAnyNode(t *testing.T) {
	rnd, kept := rand.New(rand.NewPCG(101, 102)), 0
	for try := range 120 {
		version := 1 + try%2
		n := anyScene(rnd, 64, version)
		before := map[node.Knob]node.Value{}
		for turn := range 18 {
			what := fmt.Sprintf("try %d, tick %d, v%d", try, turn, version)
			switch rnd.IntN(6) {
			case 0, 1, 2:
				n.anyPod(rnd, fmt.Sprint("pod", turn))
			case 3:
				if i := rnd.IntN(len(n.snap.Workloads)); n.snap.Workloads[i].Overrides.CPUs.Policy != 0 {
					n.snap.Workloads = append(n.snap.Workloads[:i:i], n.snap.Workloads[i+1:]...)
				}
			case 4:
				if rnd.IntN(4) == 0 {
					n.state = State{}
				}
			}
			for k, v := range n.snap.Knobs.Now {
				if _, known := before[k]; !known {
					before[k] = v
				}
			}
			var hidden []node.CgroupPath
			had := n.state.CPUs
			for _, w := range n.snap.Workloads {
				if w.Overrides.CPUs.Policy != 0 && rnd.IntN(10) == 0 {
					hidden = append(hidden, w.Cgroup)
				}
			}
			n.pass(n.anySpell(rnd))
			n.decideWithout(t, hidden)
			kept += n.checkHeld(t, what, had, hidden)
			if t.Failed() {
				t.Fatal(what)
			}
		}
		for range 3 {
			n.pass(n.anySpell(rnd))
			n.decide(t)
		}
		for _, w := range n.snap.Workloads {
			set, holds := n.state.CPUs.Set(w.ID)
			if now := n.sets()[w.Cgroup]; holds && now != set.Intersect(hold.RoomBefore(n.snap.Knobs, w.Cgroup, n.snap.Topology.All())) {
				t.Fatalf("try %d, v%d: %s is to have %v and has %v: %s", try, version, w.ID, set, now, n.state.CPUs.Text(w.ID))
			}
		}
		n.config, n.snap.Workloads = Config{}, nil
		for range 4 { // on cgroup v1 an exchange takes one more tick
			n.pass(n.anySpell(rnd))
			n.decide(t)
		}
		for k, v := range before {
			if n.snap.Knobs.Now[k] != v {
				t.Fatalf("try %d: %v was %v and is left at %v", try, k, v, n.snap.Knobs.Now[k])
			}
		}
	}
	if kept < 50 {
		t.Errorf("only %d times a pod kept CPUs while its cpuset could not be read", kept)
	}
}

// checkHeld checks what pods hold after a tick. had is what they held before. It
// returns how many pods kept CPUs while their cpuset could not be read.
func (n *scene) checkHeld(t *testing.T, what string, had hold.Held, hidden []node.CgroupPath) (kept int) {
	t.Helper()
	var owned unit.CPUSet
	for id, a := range n.state.CPUs.Allocations {
		if a.Policy != cpus.Exclusive {
			continue
		}
		if !a.CPUs.Intersect(owned).Empty() {
			t.Errorf("%s: %s owns %v, which others own", what, id, a.CPUs.Intersect(owned))
		}
		owned = owned.Union(a.CPUs)
	}
	for _, w := range n.snap.Workloads {
		was, a := had.Allocations[w.ID], n.state.CPUs.Allocations[w.ID]
		if a.Policy > cpus.Exclusive && !a.CPUs.Intersect(owned).Empty() {
			t.Errorf("%s: %s has %v, and %v are owned by others", what, w.ID, a.CPUs, a.CPUs.Intersect(owned))
		}
		if !slices.Contains(hidden, w.Cgroup) || was.Policy == 0 || was.Policy > cpus.Exclusive && owned.Contains(was.Domain) {
			continue
		}
		kept++
		if lost := was.CPUs.Minus(a.CPUs).Minus(owned); a.Policy != was.Policy || a.Domain != was.Domain || a.Policy == cpus.Exclusive && a.CPUs != was.CPUs || a.Policy == cpus.Shared && !lost.Empty() {
			t.Errorf("%s: the cpuset of %s cannot be read. It has %+v, and had %+v: %s", what, w.ID, a, was, n.state.CPUs.Text(w.ID))
		}
	}
	return kept
}
