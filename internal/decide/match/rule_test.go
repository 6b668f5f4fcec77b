package match

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

func TestRulesThatCannotMeanAnythingAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		rule Rule
		want string
	}{
		"no name":             {Rule{Class: node.BE, Units: []string{"a"}}, "name: want a name"},
		"unknown class":       {Rule{Name: "a", Class: "XX", Units: []string{"a"}}, `class: "XX": want one of [LSE LSR LS SYSTEM BE]`},
		"nothing to match":    {Rule{Name: "a", Class: node.BE}, "cgroups, units, containers: want at least one of them"},
		"the root":            {globs("/"), `cgroups[0]: "/": want a path below the root`},
		"nothing":             {globs("a", ""), `cgroups[1]: "": want a path below the root`},
		"two slashes":         {globs("a//b"), `cgroups[0]: "a//b": want a name between two slashes`},
		"a slash at the end":  {globs("a/"), `cgroups[0]: "a/": want a name between two slashes and none after the last`},
		"the way out":         {globs("a/../b"), `cgroups[0]: "a/../b": want no component ..`},
		"two stars in a name": {globs("a/b**"), `component "b**": ** stands alone between slashes`},
		"an open set":         {globs("a/b[0-9"), `component "b[0-9": want ] after [`},
		"an empty set":        {globs("a/b[]"), `component "b[]": want ] after [`},
		"a range backwards":   {globs("a[9-0]"), `component "a[9-0]": 9-0 is no range`},
		"a path as a unit":    {units("system.slice/nginx"), `units[0]: "system.slice/nginx": want the name of a unit without slashes`},
		"a timer as a unit":   {units("a", "b.timer"), `units[1]: "b.timer": want a unit that ends in one of [.service .slice .scope]`},
		"no unit":             {units(""), `units[0]: "": want the name of a unit`},
		"any depth of a unit": {units("**"), `units[0]: "**": want *`},
		"an open set in unit": {units("a[b"), `units[0]: "a[b": component "a[b.service": want ] after [`},
		"no CPU at all":       {Rule{Name: "a", Class: node.BE, Units: []string{"a"}, CPULimit: node.Some(unit.MilliCPU(0))}, "limits.cpu: 0m: want more than 0"},
		"less than nothing":   {Rule{Name: "a", Class: node.BE, Units: []string{"a"}, MemoryRequest: node.Some(unit.Bytes(-1))}, "requests.memory: -1: want 0 or more"},
		"more than the limit": {
			Rule{Name: "a", Class: node.LS, Units: []string{"a"}, MemoryRequest: node.Some(unit.Bytes(2)), MemoryLimit: node.Some(unit.Bytes(1))},
			"requests.memory: 2: want no more than limits.memory, 1",
		},
		"a priority that no pod has":   {Rule{Name: "a", Class: node.BE, Units: []string{"a"}, Priority: math.MaxInt32 + 1}, "priority: 2147483648: want a whole number from -2147483648 to 2147483647"},
		"a delay that no kernel keeps": {wanting(node.LS, time.Microsecond), "objective.runQueueDelay: 1µs: want 10µs to 1s"},
		"a delay that is too long":     {wanting(node.LS, time.Minute), "objective.runQueueDelay: 1m0s: want 10µs to 1s"},
		"a promise to batch work":      {wanting(node.BE, time.Millisecond), "objective.runQueueDelay: 1ms: want it for LSE, LSR or LS only"},
		"a promise to the system":      {wanting(node.System, time.Millisecond), "objective.runQueueDelay: 1ms: want it for LSE, LSR or LS only"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := c.rule.Check()
			if !slices.ContainsFunc(faults, func(f Fault) bool { return strings.Contains(f.Field+": "+f.Problem, c.want) }) {
				t.Errorf("got %v, want %s", faults, c.want)
			}
		})
	}
}

func globs(patterns ...string) Rule { return Rule{Name: "a", Class: node.BE, Cgroups: patterns} }
func units(patterns ...string) Rule { return Rule{Name: "a", Class: node.BE, Units: patterns} }

func wanting(c node.Class, delay time.Duration) Rule {
	return Rule{Name: "a", Class: c, Units: []string{"a"}, Objective: node.Objective{RunQueueDelay: node.Some(delay)}}
}

func TestAllFaultsOfARuleAreListed(t *testing.T) {
	var fields []string
	for _, f := range (Rule{Class: "X", Cgroups: []string{"a//b"}, Units: []string{"a/b"}}).Check() {
		fields = append(fields, f.Field)
	}
	if want := []string{"name", "class", "cgroups[0]", "units[0]"}; !slices.Equal(fields, want) {
		t.Errorf("faults of %v, want %v", fields, want)
	}
}

func TestGoodRulesPass(t *testing.T) {
	r := Rule{
		Name: "web", Class: node.LSR,
		Cgroups: []string{"/a", "a/**", "**/b[!0-9]", `system.slice/dev-x\x2dy.swap`, "a*b?/**/c"},
		Units:   []string{"nginx", "nginx.service", "batch-*.slice", "session-[0-9].scope", "*"},
		// Requests equal to the limits are valid.
		CPULimit: node.Some(unit.MilliCPU(500)), CPURequest: node.Some(unit.MilliCPU(500)),
		MemoryLimit: node.Some(unit.MaxBytes), MemoryRequest: node.Some(unit.Bytes(0)),
		Priority: math.MinInt32, Objective: node.Objective{RunQueueDelay: node.Some(time.Second)},
	}
	if faults := r.Check(); len(faults) > 0 {
		t.Error(faults)
	}
}
