package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/machine/conformance"
	"tenon.sh/tenon/internal/machine/sim"
	"tenon.sh/tenon/internal/model/node"
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

// TestLimitsAreExactWhereTheKernelDividesBursts sets and releases CPU limits on
// a kernel whose writes of cpu.max divide the burst.
func TestLimitsAreExactWhereTheKernelDividesBursts(t *testing.T) {
	n := sim.New(sim.Options{DividesBurst: true})
	k := node.Knob{Cgroup: "web", File: node.FileCPUMax}
	burst := func(want string) {
		t.Helper()
		if got, err := n.ReadFile(k.Cgroup, "cpu.max.burst"); err != nil || got != want+"\n" {
			t.Errorf("the burst is %q, %v, want %s", got, err, want)
		}
	}
	owner := func(file, text string) {
		t.Helper()
		if err := n.WriteFile(k.Cgroup, file, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.MakeGroup(k.Cgroup); err != nil {
		t.Fatal(err)
	}
	owner("cpu.max.burst", "70000")
	owner("cpu.max", "100000 100000")
	burst("70") // the fault
	owner("cpu.max.burst", "50000")

	const ms = time.Millisecond
	before := node.CPUMax{Quota: 100 * ms, Period: 100 * ms, Burst: 50 * ms}
	for _, to := range []node.CPUMax{{Quota: 120 * ms, Period: 100 * ms, Burst: 50 * ms}, {Quota: 130 * ms, Period: 100 * ms, Burst: 80 * ms}} {
		if err := n.Apply(t.Context(), plan.Step{Knob: k, To: to}); err != nil {
			t.Fatal(err)
		}
		burst(fmt.Sprint(to.Burst.Microseconds()))
	}
	if err := n.Apply(t.Context(), plan.Step{Knob: k, To: before, Release: true}); err != nil {
		t.Fatal(err)
	}
	burst("50000")

	conformance.Run(t, "tenon-test", func(*testing.T) conformance.Node {
		return sim.New(sim.Options{Topology: conformance.Topology(2, 2, 2), DividesBurst: true})
	})
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
