package suppress

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var fourCPUs = node.Topology{CPUs: []node.LogicalCPU{{ID: 0}, {ID: 1, Core: 1}, {ID: 2, Core: 2}, {ID: 3, Core: 3}}}

// TestOneUnknownCPUIsEnough checks that one CPU without a known use makes the
// budget unknown, because it may be fully busy.
func TestOneUnknownCPUIsEnough(t *testing.T) {
	s := node.Snapshot{Topology: fourCPUs}
	u := facts.Use{Elapsed: time.Second, CPU: map[unit.CPU]unit.MilliCPU{0: 0, 1: 0, 3: 0}}
	b := BudgetOf(Config{Enable: true, ThresholdPercent: 65}, facts.NodeCPUs{}, u, s, s.Topology.All())
	if b.May != b.Least || !strings.Contains(b.Reason, "the use of CPU 2 is unknown") {
		t.Errorf("BE may use %v: %s", b.May, b.Reason)
	}
}

// Reserved CPU counts as use by the system, as in Koordinator: systemUsed =
// max(measured, reserved).
func TestReservedCPUIsSubtractedFromTheBudget(t *testing.T) {
	s := node.Snapshot{Topology: fourCPUs}
	u := facts.Use{Elapsed: time.Second, CPU: map[unit.CPU]unit.MilliCPU{0: 500, 1: 0, 2: 0, 3: 0}}
	for reserved, want := range map[unit.MilliCPU]unit.MilliCPU{0: 2100, 300: 2100, 1500: 1100} {
		b := BudgetOf(Config{Enable: true, ThresholdPercent: 65}, facts.NodeCPUs{Reserved: reserved}, u, s, s.Topology.All())
		if b.May != want || strings.Contains(b.Reason, "reserved") != (reserved == 1500) {
			t.Errorf("%v reserved: BE may use %v: %s; want %v", reserved, b.May, b.Reason, want)
		}
	}
}
