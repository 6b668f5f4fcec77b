package suppress

import (
	"testing"

	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestTheQuotaOfABoundHasItsPeriod has a contention root whose present quota allows
// the wanted CPU already, perhaps in another period.
func TestTheQuotaOfABoundHasItsPeriod(t *testing.T) {
	for _, c := range []struct {
		now     node.CPUMax
		bounded bool
		most    unit.MilliCPU
		want    node.CPUMax
	}{
		{node.Limit(1000), true, 1000, culprit.Limit(1000)},
		{node.Limit(1000), false, 1000, node.Limit(1000)},
		{culprit.Limit(1000), true, 1000, culprit.Limit(1000)},
		{culprit.Limit(1000), true, 1005, culprit.Limit(1000)}, // too small a change
		{culprit.Limit(1000), false, 1000, node.Limit(1000)},
		{node.CPUMax{Quota: 2000e3, Period: 2e6}, false, 1000, node.CPUMax{Quota: 2000e3, Period: 2e6}}, // another component's period
		{node.Limit(100), true, 50, node.Limit(50)},                                                     // less than the kernel allows in the short period
	} {
		x := suppressor{
			Layout: facts.Layout{Roots: []node.CgroupPath{"be"}},
			Budget: Budget{Capacity: 2000, Least: 10, May: 2000},
			tops:   map[node.CgroupPath]top{"be": {most: c.most, limited: true, bounded: c.bounded}},
			snap:   node.Snapshot{Knobs: node.Knobs{Now: map[node.Knob]node.Value{{Cgroup: "be", File: node.FileCPUMax}: c.now}}},
		}
		if _, wants := x.giveQuota(); wants[0].Value != node.Value(c.want) {
			t.Errorf("%v now, bounded %v to %v: %v, want %v", c.now, c.bounded, c.most, wants[0].Value, c.want)
		}
	}
}
