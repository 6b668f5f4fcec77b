package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// TestEveryKnobHasOneOwner lets any work live under all that turns knobs of
// the CPU at once. Each knob is wanted by one policy in a turn, and by the same
// in all turns but those in which its workload comes or goes.
func TestEveryKnobHasOneOwner(t *testing.T) {
	rnd := rand.New(rand.NewPCG(51, 52))
	owners := map[node.File]map[string]bool{}
	for try := range 30 {
		n := anyScene(rnd, 48, 1+try%2)
		n.config.Burst = Burst{BurstAuto, 1000, 300, -1, 50}
		n.config.Memory.Classes = map[node.Class]MemoryShares{node.LS: {LowPercent: 50}, node.BE: {ThrottlingPercent: 50}}
		for i := range 3 {
			n.anyClaim(rnd, fmt.Sprint("own", i))
		}
		n.add(node.Workload{ID: "limited", Class: node.LS, Cgroup: "LS/limited", Meet: "LS", CPULimit: node.Some(unit.MilliCPU(700))})
		for range 6 {
			n.pass(n.anySpell(rnd))
			n.checkWants(t)
			n.decide(t)
			for _, w := range n.wants {
				if owners[w.Knob.File] == nil {
					owners[w.Knob.File] = map[string]bool{}
				}
				owners[w.Knob.File][w.Owner] = true
				_, inBE := layoutOf(n.snap).meetAbove(w.Knob.Cgroup)
				if set := w.Knob.File == node.FileCPUs || w.Knob.File == node.FileMems; set && inBE == (w.Owner == "pin") {
					t.Fatalf("try %d: %v, best-effort: %v, is %s's", try, w.Knob, inBE, w.Owner)
				}
			}
		}
	}
	for file, want := range map[node.File][]string{
		node.FileCPUWeight: {"cpuqos"}, node.FileCPUMax: {"limit", "suppress"}, node.FileCPUs: {"pin", "suppress"}, node.FileMems: {"pin"},
	} {
		if len(owners[file]) != len(want) {
			t.Errorf("%s is wanted by %v; want %v", file, owners[file], want)
		}
		for _, o := range want {
			if !owners[file][o] {
				t.Errorf("%s is wanted by %v; want %v", file, owners[file], want)
			}
		}
	}
}
