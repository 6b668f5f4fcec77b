package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A namespace in ack-slo-pod-config can enable shares that the configuration
// disables for the class.
func TestMemorySharesOfADisabledClassApplyToItsRequesters(t *testing.T) {
	off := Config{Off: map[node.Class]Shares{node.LS: {MinPercent: 100}}}
	for _, tc := range []struct {
		ask  node.MemoryOverride
		c    Config
		want unit.Percent
	}{
		{node.MemoryOverride{}, off, 0},
		{node.MemoryOverride{Enabled: true}, off, 100},
		{node.MemoryOverride{Enabled: true}, Config{}, 0},
		{node.MemoryOverride{Enabled: true}, Config{Classes: map[node.Class]Shares{node.LS: {MinPercent: 30}}, Off: off.Off}, 30},
		{node.MemoryOverride{OwnOnly: true}, Config{Classes: off.Off}, 0},
	} {
		s := node.Snapshot{Workloads: []node.Workload{{ID: "shop/web", Class: node.LS, Cgroup: "web", Overrides: node.Overrides{Memory: tc.ask}}}}
		if got := holdersOf(tc.c, s)[0].MinPercent; got != tc.want {
			t.Errorf("%+v asks for %+v: min %v, want %v", tc.c, tc.ask, got, tc.want)
		}
	}
}

// TestProtectionSumsNeverOverflow checks sums that are too large for the type.
// They must become "no limit", because a parent must never have less than one
// of its children.
func TestProtectionSumsNeverOverflow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(19, 20))
	for range 300 {
		leaves := map[node.CgroupPath]protection{}
		for range rnd.IntN(12) {
			p := node.CgroupPath("a")
			for range rnd.IntN(5) {
				p = p.Join(fmt.Sprint(rnd.IntN(3)))
			}
			least := unit.Bytes(rnd.Int64() >> rnd.IntN(64))
			leaves[p] = protection{least, max(least, unit.Bytes(rnd.Int64()>>rnd.IntN(64)))}
		}
		needs, paths := protectAbove(leaves, nil)
		if len(needs) != len(paths) {
			t.Fatalf("%d paths for %d needs", len(paths), len(needs))
		}
		for p, n := range needs {
			if n.min < leaves[p].min || n.low < leaves[p].low || n.low < n.min {
				t.Fatalf("%s needs %+v and gets %+v", p, leaves[p], n)
			}
			if up, above := needs[p.Parent()]; above && (up.min < n.min || up.low < n.low) {
				t.Fatalf("%s has %+v and its parent %+v", p, n, up)
			}
		}
	}
}
