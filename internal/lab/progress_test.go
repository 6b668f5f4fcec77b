package lab

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestTenondUnderstandsWhatTheLabTellsIt checks that tenond accepts the
// configuration that the lab writes. tenond must then have the same policies as
// the loop that the lab itself runs.
func TestTenondUnderstandsWhatTheLabTellsIt(t *testing.T) {
	tested := unit.CPUSetOf(0)
	v1, v2 := sizesOf(256<<20, 1), sizesOf(256<<20, 2)
	p := testbed.Pods{Root: "lab", Job: "hog", Tested: tested}
	reaction := &reactionEnvironment{ReactionConfig: ReactionConfig{Setting: testbed.Setting{Root: "lab"}, Objective: time.Millisecond}, Site: &testbed.Site{Place: testbed.Placement{Tested: tested}}}
	for name, c := range map[string]testbed.TenondConfig{
		"colocation":    colocationTenond(testbed.Pods{Root: "lab", Tested: tested}, report.ModeSpec{Suppress: true}),
		"isolation":     colocationTenond(testbed.Pods{Root: "lab", Tested: tested}, report.ModeSpec{}),
		"a rung":        colocationTenond(testbed.Pods{Root: "lab", Tested: tested}, report.ModeSpec{Mechanism: node.MechanismCoreSched}),
		"memory on v1":  (&memoryEnvironment{sizes: v1}).tenondConfig(p),
		"memory on v2":  (&memoryEnvironment{sizes: v2}).tenondConfig(p),
		"events":        reaction.tenondConfig(report.Events),
		"a clock alone": reaction.tenondConfig(report.Ticks),
		"PSI":           reaction.tenondConfig(report.PSI),
		"idle":          reaction.tenondConfig(report.IdleBE),
	} {
		text, err := c.Text()
		if err != nil {
			t.Fatal(err)
		}
		got, faults := config.Parse(text)
		if len(faults) > 0 || len(got.Notices) > 0 {
			t.Errorf("%s: faults %v, notices %q in\n%s", name, faults, got.Notices, text)
			continue
		}
		if len(got.Rules) != 2 || got.Policy.CPUQOS.Enable != c.Isolate || got.Policy.CPUQOS.Mechanism != c.Mechanism || got.Policy.Suppress.Enable != c.Suppress {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Signals.RunQueueDelay == c.NoDelays || got.Signals.Pressure == c.NoPressure {
			t.Errorf("%s: signals %+v", name, got.Signals)
		}
		for class, shares := range c.Memory.Classes {
			if got.Policy.Memory.Classes[class] != shares {
				t.Errorf("%s: %s gets %+v, want %+v", name, class, got.Policy.Memory.Classes[class], shares)
			}
		}
		for i, r := range c.Rules {
			if has := got.Rules[i]; has.MemoryRequest.Or(0) != r.Request || has.MemoryLimit.Or(0) != r.Limit || has.Objective.RunQueueDelay.Or(0) != r.Objective {
				t.Errorf("%s: rule %+v, want %+v", name, has, r)
			}
		}
	}
}
