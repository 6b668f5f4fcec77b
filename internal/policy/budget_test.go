package policy

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// TestOneUnknownCPUIsEnough: a CPU of which nobody knows how busy it is may be
// as busy as can be.
func TestOneUnknownCPUIsEnough(t *testing.T) {
	s := node.Snapshot{Topology: machine(4, 1, 1, 1)}
	u := use{Elapsed: time.Second, CPU: map[unit.CPU]unit.MilliCPU{0: 0, 1: 0, 3: 0}}
	b := budgetOf(Suppress{Enable: true, ThresholdPercent: 65}, u, s, s.Topology.All())
	if b.may != b.least || !strings.Contains(b.reason, "how busy CPU 2 is, is unknown") {
		t.Errorf("BE may use %v: %s", b.may, b.reason)
	}
}
