package sim_test

import (
	"fmt"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/machine/conformance"
	"tenon.sh/tenon/internal/machine/sim"
)

func TestConformance(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			conformance.Run(t, "tenon-test", func(*testing.T) conformance.Node {
				return sim.New(sim.Options{Version: version, Topology: conformance.Topology(2, 2, 2)})
			})
		})
	}
}

// TestEveryRuleIsNeeded removes one rule after the other and runs the suite.
// The fact with the name of the removed rule must fail.
func TestEveryRuleIsNeeded(t *testing.T) {
	for _, version := range []int{1, 2} {
		facts := conformance.Facts(version)
		for _, rule := range sim.Rules(version) {
			t.Run(fmt.Sprintf("v%d without %s", version, rule), func(t *testing.T) {
				i := slices.IndexFunc(facts, func(f conformance.Fact) bool { return f.Name == rule })
				if i < 0 {
					t.Fatalf("no fact of the suite is named %q", rule)
				}
				n := sim.New(sim.Options{Version: version, Without: []string{rule}})
				if facts[i].Verify(t.Context(), n, "tenon-test") == nil {
					t.Errorf("the suite passes on a simulator without the rule %q", rule)
				}
			})
		}
	}
}

func TestThereAreEnoughRules(t *testing.T) {
	names := map[string]bool{}
	for _, version := range []int{1, 2} {
		for _, rule := range sim.Rules(version) {
			names[rule] = true
		}
	}
	if len(names) < 30 {
		t.Errorf("the simulator has %d rules", len(names))
	}
}
