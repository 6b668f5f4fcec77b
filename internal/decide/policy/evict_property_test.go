package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const gib = unit.Bytes(1) << 30

// anyEvictor returns a node with 64 GiB of memory and work of all classes. Some
// workloads are nested, and the size of some is unknown.
func anyEvictor(rnd *rand.Rand) *scene {
	n := newScene(machine(8, 2, 1, 1), 1+rnd.IntN(2))
	n.snap.Capabilities[node.FeatureCgroupFreezer] = node.Answer{Verdict: []node.Verdict{node.Yes, node.No}[rnd.IntN(2)]}
	n.config.Evict = evict.Config{
		Memory: evict.MemoryConfig{ThresholdPercent: 70, LowerPercent: unit.Percent(50 + rnd.IntN(20))},
		CPU: evict.CPUConfig{SatisfactionLower: 30, SatisfactionUpper: 60, UsageThreshold: 90, Window: 5 * time.Second,
			ThresholdPercent: unit.Percent(rnd.IntN(2) * 80), LowerPercent: 70},
		Grace: time.Duration(rnd.IntN(12)) * time.Second,
	}
	if rnd.IntN(2) == 0 {
		n.config.Evict.MostPriority = node.Some(int64(rnd.IntN(4)))
	}
	for i := range 3 + rnd.IntN(12) {
		class := node.Classes[rnd.IntN(len(node.Classes))]
		if rnd.IntN(2) == 0 {
			class = node.BE
		}
		name := fmt.Sprintf("w%02d", i)
		w := node.Workload{ID: node.WorkloadID(name), Class: class, Cgroup: node.CgroupPath(strings.ToLower(string(class)) + "/" + name), Priority: rnd.IntN(4)}
		w.ContentionRoot = w.Cgroup.Parent()
		if rnd.IntN(8) == 0 && len(n.snap.Workloads) > 0 {
			w.Cgroup = n.snap.Workloads[0].Cgroup.Join(name)
		}
		if rnd.IntN(4) > 0 {
			w.CPURequest = node.Some(unit.MilliCPU(rnd.IntN(4000)))
		}
		n.add(w)
	}
	n.showRuns()
	return n
}

// fill sets the memory use of the work and of the node.
func (n *scene) fill(rnd *rand.Rand) {
	var sum unit.Bytes
	for i, w := range n.snap.Workloads {
		b := unit.Bytes(rnd.Int64N(int64(6 * gib)))
		n.snap.Workloads[i].Usage.WorkingSet = node.Some(b)
		if rnd.IntN(10) == 0 {
			n.snap.Workloads[i].Usage.WorkingSet = node.Maybe[unit.Bytes]{}
		}
		if n.snap.Knobs.Now[evict.RunKnob(w)] == node.Ended {
			n.snap.Workloads[i].Usage.WorkingSet = node.Some(unit.Bytes(0))
			continue
		}
		sum += b
	}
	n.snap.Usage.Memory = node.Some(min(sum+unit.Bytes(rnd.Int64N(int64(30*gib))), 64*gib))
	if rnd.IntN(10) == 0 {
		n.snap.Usage.Memory = node.Maybe[unit.Bytes]{}
	}
}

// TestOnlyAsLittleAsNeededEnds runs random nodes for some time. It checks that
// Tenon stops only BE work that it may evict, and chooses no victim while the
// memory usage is below the threshold or unknown. The victims must have the
// lowest priorities. The victims before the last one must not have freed enough
// memory.
func TestOnlyAsLittleAsNeededEnds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(41, 42))
	chosen, killed, frozen := 0, 0, 0
	for range 80 {
		n := anyEvictor(rnd)
		for range 25 {
			p := n.anySpell(rnd)
			n.pass(p)
			n.fill(rnd)
			before := n.state.Evictions
			var asked []node.Workload
			of := map[node.CgroupPath]node.Workload{}
			for _, w := range n.snap.Workloads {
				of[w.Cgroup] = w
			}
			n.checkWants(t)
			for _, s := range n.decide(t) {
				if s.Knob.File != node.FileRun {
					continue
				}
				w := of[s.Knob.Cgroup]
				if s.To != node.Running {
					n.mayStop(t, w)
				}
				switch s.To {
				case node.AskedToEnd:
					chosen++
					if n.state.Evictions.Victims[w.ID].Cause == evict.CauseMemory {
						asked = append(asked, w)
					}
				case node.Ended:
					killed++
					if _, known := before.Victims[w.ID]; !known {
						t.Fatalf("%v was killed without having been asked", w.ID)
					}
				case node.Frozen:
					frozen++
				}
				if v := n.state.Evictions.Victims[w.ID]; s.To.(node.Run).EndsProcesses() && !slices.Contains(evict.Causes, v.Cause) {
					t.Fatalf("no cause %q: %q", v.Cause, s.Reason)
				}
			}
			n.checkNeed(t, asked)
			for _, w := range asked {
				if rnd.IntN(2) == 0 {
					n.snap.Knobs.Now[evict.RunKnob(w)] = node.Ended
				}
			}
		}
	}
	if chosen < 50 || killed < 20 || frozen < 10 {
		t.Errorf("%d chosen, %d killed, %d frozen: too little happened", chosen, killed, frozen)
	}
}

// mayStop checks that a workload may be stopped.
func (n *scene) mayStop(t *testing.T, w node.Workload) {
	t.Helper()
	if w.Class != node.BE || w.Cgroup == "" {
		t.Fatalf("%v of class %v was stopped", w.ID, w.Class)
	}
	if most, bounded := n.config.Evict.MostPriority.Value(); bounded && int64(w.Priority) > most {
		t.Fatalf("%v of priority %d was stopped, at most %d may be", w.ID, w.Priority, most)
	}
	for _, o := range n.snap.Workloads {
		if o.ID != w.ID && w.Cgroup.Contains(o.Cgroup) {
			t.Fatalf("%v was stopped and holds %v", w.ID, o.ID)
		}
	}
}

// checkNeed checks, for each workload that Tenon asked to end, that memory was
// still short at that time.
func (n *scene) checkNeed(t *testing.T, asked []node.Workload) {
	t.Helper()
	if len(asked) == 0 {
		return
	}
	c := n.config.Evict.Memory
	used, known := n.snap.Usage.Memory.Value()
	if !known || used < (64*gib).Percent(c.ThresholdPercent) {
		t.Fatalf("%d workloads were asked to end at %v in use", len(asked), n.snap.Usage.Memory)
	}
	need := used - (64 * gib).Percent(c.LowerPercent)
	var sum, least unit.Bytes
	most := asked[0]
	for i, w := range asked {
		b := facts.MemoryOf(w).Or(0)
		sum += b
		if i == 0 || b < least {
			least = b
		}
		if w.Priority > most.Priority {
			most = w
		}
	}
	if sum-least >= need && len(asked) > 1 {
		// A victim of lower priority can be smaller than others. So this checks
		// only that the last victim in the order was needed.
		last := unit.Bytes(0)
		for _, w := range asked {
			if w.Priority == most.Priority && (last == 0 || facts.MemoryOf(w).Or(0) < last) {
				last = facts.MemoryOf(w).Or(0)
			}
		}
		if sum-last >= need {
			t.Fatalf("%v were asked to end for %v, more than needed", asked, need)
		}
	}
	for _, w := range n.snap.Workloads {
		_, victim := n.state.Evictions.Victims[w.ID]
		b, known := facts.MemoryOf(w).Value()
		most2, bounded := n.config.Evict.MostPriority.Value()
		if w.Class == node.BE && !victim && known && b > 0 && w.Priority < most.Priority && !(bounded && int64(w.Priority) > most2) &&
			n.snap.Knobs.Now[evict.RunKnob(w)] != node.Ended && n.alone(w) {
			t.Fatalf("%v has priority %d and stays, %v has %d and goes", w.ID, w.Priority, most.ID, most.Priority)
		}
	}
}

func (n *scene) alone(w node.Workload) bool {
	for _, o := range n.snap.Workloads {
		if o.ID != w.ID && w.Cgroup.Contains(o.Cgroup) {
			return false
		}
	}
	return true
}

// TestNoWantsWhileNoEvictionIsDue checks that enabled evictions return no wants
// while no eviction is due, for any number of workloads.
func TestNoWantsWhileNoEvictionIsDue(t *testing.T) {
	n := newScene(machine(4, 1, 1, 1), 2)
	n.config.Evict = evict.Config{Memory: evict.MemoryConfig{ThresholdPercent: 70, LowerPercent: 68}}
	for i := range 1000 {
		p := node.CgroupPath(fmt.Sprintf("be/job%d", i))
		n.add(node.Workload{ID: node.WorkloadID(p), Class: node.BE, Cgroup: p, ContentionRoot: "be"})
	}
	n.showRuns()
	n.snap.Usage.Memory = node.Some(gib)
	for range 3 {
		n.pass(spell{every: time.Second})
		n.snap.Usage.Memory = node.Some(gib)
		n.decide(t)
		for _, w := range n.wants {
			if w.Knob.File == node.FileRun {
				t.Fatalf("%+v", w)
			}
		}
	}
}

// TestAGraceIsNeverShort checks that Tenon kills a victim only after its whole
// grace period, if the victim's memory does not grow. The times between ticks
// are random.
func TestAGraceIsNeverShort(t *testing.T) {
	rnd := rand.New(rand.NewPCG(43, 44))
	for range 300 {
		grace := time.Duration(rnd.IntN(20)) * time.Second
		n := newScene(machine(4, 1, 1, 1), 2)
		n.config.Evict = evict.Config{Memory: evict.MemoryConfig{ThresholdPercent: 70, LowerPercent: 68}, Grace: grace}
		n.add(node.Workload{ID: "job", Class: node.BE, Cgroup: "be/job", ContentionRoot: "be"})
		n.showRuns()
		var asked, now time.Duration
		for turn := 0; ; turn++ {
			every := time.Duration(rnd.Int64N(int64(facts.LongestGap)))
			if rnd.IntN(10) == 0 {
				every = -every // the clock was set back
			}
			n.snap.At = n.snap.At.Add(every)
			now += max(every, 0)
			n.snap.Usage.Memory = node.Some(50 * gib)
			n.snap.Workloads[0].Usage.Memory = node.Some(8 * gib)
			var did plan.Step
			for _, s := range n.decide(t) {
				if s.Knob.File == node.FileRun {
					did = s
				}
			}
			if did.To == node.AskedToEnd {
				asked = now
			}
			if did.To == node.Ended {
				if now-asked < grace {
					t.Fatalf("killed %v after it was asked, it has %v", now-asked, grace)
				}
				break
			}
			if turn > 1000 {
				t.Fatal("it is never killed")
			}
		}
	}
}
