package policy

import (
	"testing"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// A namespace of ack-slo-pod-config switches on what is off for the class.
func TestMemorySharesOfAClassThatIsOffCountForWhoAsks(t *testing.T) {
	off := MemoryQOS{Off: map[node.Class]MemoryShares{node.LS: {MinPercent: 100}}}
	for _, tc := range []struct {
		ask  node.MemoryAsk
		c    MemoryQOS
		want unit.Percent
	}{
		{node.MemoryAsk{}, off, 0},
		{node.MemoryAsk{Enabled: true}, off, 100},
		{node.MemoryAsk{Enabled: true}, MemoryQOS{}, 0},
		{node.MemoryAsk{Enabled: true}, MemoryQOS{Classes: map[node.Class]MemoryShares{node.LS: {MinPercent: 30}}, Off: off.Off}, 30},
		{node.MemoryAsk{Own: true}, MemoryQOS{Classes: off.Off}, 0},
	} {
		s := node.Snapshot{Workloads: []node.Workload{{ID: "shop/web", Class: node.LS, Cgroup: "web", Asks: node.Asks{Memory: tc.ask}}}}
		if got := holdersOf(tc.c, s)[0].MinPercent; got != tc.want {
			t.Errorf("%+v asks for %+v: min %v, want %v", tc.c, tc.ask, got, tc.want)
		}
	}
}
