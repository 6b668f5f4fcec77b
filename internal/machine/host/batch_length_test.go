package host_test

import (
	"testing"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAStepForWhichTheKernelReclaimsMemoryGoesAlone checks that a batch contains
// no step that narrows a memory limit. The write of such a step may take seconds,
// and the caller of a batch gives it a fraction of a second.
func TestAStepForWhichTheKernelReclaimsMemoryGoesAlone(t *testing.T) {
	limit := func(p node.CgroupPath, from, to unit.Bytes) plan.Step {
		memory := func(b unit.Bytes) node.Value { return node.Memory{High: unit.MaxBytes, Max: b} }
		return plan.Step{Knob: node.Knob{Cgroup: p, File: node.FileMemory}, From: memory(from), To: memory(to)}
	}
	const mib = unit.Bytes(1 << 20)
	narrow, narrow2 := limit("a", unit.MaxBytes, mib), limit("b", 2*mib, mib)
	widen, widen2 := limit("c", mib, 2*mib), limit("d", mib, unit.MaxBytes)
	quota := plan.Step{Knob: node.Knob{Cgroup: "e", File: node.FileCPUMax}, From: node.Limit(2000), To: node.Limit(1000)}
	for name, c := range map[string]struct {
		steps []plan.Step
		want  int
	}{
		"narrow":                 {[]plan.Step{narrow, narrow2}, 1},
		"narrow after others":    {[]plan.Step{quota, widen, narrow, widen2}, 2},
		"others after one":       {[]plan.Step{narrow, quota, widen}, 1},
		"widen":                  {[]plan.Step{widen, widen2, quota}, 3},
		"the only step":          {[]plan.Step{narrow}, 1},
		"threads of each cgroup": {[]plan.Step{{Knob: node.Knob{Cgroup: "a", File: node.FileSlice}, To: node.ThreadsBE}, quota}, 1},
	} {
		if got := host.BatchLength(c.steps); got != c.want {
			t.Errorf("%s: %d steps together, want %d", name, got, c.want)
		}
	}
}
