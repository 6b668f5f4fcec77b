package policy

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestOneUnknownCPUIsEnough checks that one CPU without a known use makes the
// budget unknown, because it may be fully busy.
func TestOneUnknownCPUIsEnough(t *testing.T) {
	s := node.Snapshot{Topology: machine(4, 1, 1, 1)}
	u := facts.Use{Elapsed: time.Second, CPU: map[unit.CPU]unit.MilliCPU{0: 0, 1: 0, 3: 0}}
	b := budgetOf(Suppress{Enable: true, ThresholdPercent: 65}, facts.Pool{}, u, s, s.Topology.All())
	if b.may != b.least || !strings.Contains(b.reason, "the use of CPU 2 is unknown") {
		t.Errorf("BE may use %v: %s", b.may, b.reason)
	}
}

// Reserved CPU counts as use by the system, as in Koordinator: systemUsed =
// max(measured, reserved).
func TestReservedCPUIsSubtractedFromTheBudget(t *testing.T) {
	s := node.Snapshot{Topology: machine(4, 1, 1, 1)}
	u := facts.Use{Elapsed: time.Second, CPU: map[unit.CPU]unit.MilliCPU{0: 500, 1: 0, 2: 0, 3: 0}}
	for reserved, want := range map[unit.MilliCPU]unit.MilliCPU{0: 2100, 300: 2100, 1500: 1100} {
		b := budgetOf(Suppress{Enable: true, ThresholdPercent: 65}, facts.Pool{Reserved: reserved}, u, s, s.Topology.All())
		if b.may != want || strings.Contains(b.reason, "reserved") != (reserved == 1500) {
			t.Errorf("%v reserved: BE may use %v: %s; want %v", reserved, b.may, b.reason, want)
		}
	}
}
