package sim_test

import (
	"slices"
	"testing"

	"tenon.sh/tenon/internal/machine/conformance"
	"tenon.sh/tenon/internal/machine/sim"
	"tenon.sh/tenon/internal/model/node"
)

// dividers lists machines with different kinds of resctrl.
var dividers = map[string]sim.Resctrl{
	"Intel": {
		Groups: 8, Ways: node.CacheWays{Domains: []node.CacheID{0, 1}, Mask: 0x7ff, Least: 1},
		MB: node.Bandwidth{Unit: node.BandwidthPercent, Least: 10, Step: 10, Most: 100}, MBDomains: []node.CacheID{0, 1},
	},
	"AMD": {
		Groups: 16, Ways: node.CacheWays{Domains: []node.CacheID{0, 8, 9}, Mask: 0xffff, Sparse: true},
		MB: node.Bandwidth{Unit: node.BandwidthEighths, Step: 1, Most: 2048}, MBDomains: []node.CacheID{0, 8, 9},
	},
	"cache alone": {Groups: 4, Ways: node.CacheWays{Domains: []node.CacheID{0}, Mask: 0xfffff, Least: 2}},
	"bandwidth alone": {
		Groups: 8, MB: node.Bandwidth{Unit: node.BandwidthPercent, Least: 10, Step: 10, Most: 100}, MBDomains: []node.CacheID{0}, MBPerCore: true,
	},
	"1 group": {Groups: 1, Ways: node.CacheWays{Domains: []node.CacheID{0}, Mask: 0xfff, Least: 1}},
}

func TestResctrlConformance(t *testing.T) {
	for name, r := range dividers {
		t.Run(name, func(t *testing.T) {
			conformance.RunControls(t, "tenon-test", func(*testing.T) conformance.DividedNode {
				return sim.New(sim.Options{Topology: conformance.Topology(2, 2, 2), Resctrl: &r})
			})
		})
	}
}

// TestEveryRuleOfResctrlIsNeeded removes one rule after the other and runs the
// suite. The fact with the name of the removed rule must fail.
func TestEveryRuleOfResctrlIsNeeded(t *testing.T) {
	facts, r := conformance.ControlFacts(), dividers["Intel"]
	for _, rule := range sim.ControlRules() {
		t.Run(rule, func(t *testing.T) {
			i := slices.IndexFunc(facts, func(f conformance.ControlFact) bool { return f.Name == rule })
			if i < 0 {
				t.Fatalf("no fact of the suite is named %q", rule)
			}
			n := sim.New(sim.Options{Resctrl: &r, Without: []string{rule}})
			if why, err := facts[i].Verify(t.Context(), n, "tenon-test"); err == nil || why != "" {
				t.Errorf("the suite passes on a simulator without the rule %q: %s", rule, why)
			}
		})
	}
}
