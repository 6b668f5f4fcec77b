package capability

import (
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestCoreSchedulingIsAskedAgainWithSMT checks that the answer about core
// scheduling, which needs SMT, is no older than the answer about SMT.
func TestCoreSchedulingIsAskedAgainWithSMT(t *testing.T) {
	alone := node.Topology{CPUs: []node.LogicalCPU{{ID: 0, Core: 0}}}
	both := node.Topology{CPUs: []node.LogicalCPU{{ID: 0, Core: 0}, {ID: 1, Core: 0}}}
	kernel := probeCoreSched()
	for name, tc := range map[string]struct {
		was    node.Topology
		now    node.Topology
		before node.Answer
		asks   bool
	}{
		"SMT was switched on":                 {alone, both, no("before"), true},
		"SMT was switched off":                {both, alone, yes("before"), true},
		"the kernel refused it for a moment":  {both, both, no("before"), true},
		"the kernel accepts it, SMT stays":    {both, both, yes("before"), false},
		"without SMT the kernel is not asked": {alone, alone, no("before"), false},
	} {
		can := node.Capabilities{node.FeatureHardwareSMT: answerSMT(tc.was), node.FeatureCoreSched: tc.before, node.FeatureBPF: yes("before")}
		got := Node{}.Follow(can, tc.now)
		want := tc.before
		if tc.asks {
			want = kernel
		}
		if got[node.FeatureCoreSched] != want || got[node.FeatureHardwareSMT] != answerSMT(tc.now) || got[node.FeatureBPF] != yes("before") {
			t.Errorf("%s: %v, want core scheduling %+v", name, got, want)
		}
		if can[node.FeatureCoreSched] != tc.before || can[node.FeatureHardwareSMT] != answerSMT(tc.was) {
			t.Errorf("%s: the earlier answers became %v", name, can)
		}
	}
	if got := (Node{}).Follow(node.Capabilities{}, both); len(got) != 0 {
		t.Errorf("answers that nothing has probed: %v", got)
	}
}
