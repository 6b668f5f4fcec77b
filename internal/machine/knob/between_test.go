package knob

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestEveryKnobIsInTheTable checks that the table has each knob. The error
// names the one that is missing.
func TestEveryKnobIsInTheTable(t *testing.T) {
	if wrong := node.MissingFiles(betweenFuncs); wrong != "" {
		t.Error(wrong)
	}
}

func TestAMixOfTwoValuesIsBetweenThem(t *testing.T) {
	const ms = time.Millisecond
	idle, plain := node.CPUWeight{Idle: true}, node.CPUWeight{Weight: unit.WeightOfShares(333)}
	for name, c := range map[string]struct {
		file          node.File
		from, to, now node.Value
		want          bool
	}{
		"the old value":                         {node.FilePIDs, node.PIDs{Max: 1}, node.PIDs{Max: 2}, node.PIDs{Max: 1}, true},
		"the new value":                         {node.FilePIDs, node.PIDs{Max: 1}, node.PIDs{Max: 2}, node.PIDs{Max: 2}, true},
		"another value":                         {node.FilePIDs, node.PIDs{Max: 1}, node.PIDs{Max: 2}, node.PIDs{Max: 3}, false},
		"idle cleared and weight not yet":       {node.FileCPUWeight, idle, plain, node.CPUWeight{Weight: unit.WeightOf(100)}, true},
		"a default weight that was never idle":  {node.FileCPUWeight, plain, idle, node.CPUWeight{Weight: unit.WeightOf(100)}, false},
		"new period with old quota":             {node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms}, node.CPUMax{Quota: 50 * ms, Period: 40 * ms}, true},
		"no quota on the way":                   {node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms}, node.CPUMax{Quota: node.NoQuota, Period: 100 * ms}, true},
		"burst lowered and quota not yet":       {node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms, Burst: 50 * ms}, node.CPUMax{Quota: 20 * ms, Period: 100 * ms, Burst: 5 * ms}, node.CPUMax{Quota: 50 * ms, Period: 100 * ms, Burst: 5 * ms}, true},
		"a quota of another component":          {node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms}, node.CPUMax{Quota: 33 * ms, Period: 100 * ms}, false},
		"a new memory.high with old memory.max": {node.FileMemory, node.NoMemoryLimit, node.Memory{High: 1 << 20, Max: 2 << 20}, node.Memory{High: 1 << 20, Max: unit.MaxBytes}, true},
		"another memory.max":                    {node.FileMemory, node.NoMemoryLimit, node.Memory{High: 1 << 20, Max: 2 << 20}, node.Memory{High: 1 << 20, Max: 3 << 20}, false},
		"a set is never in between":             {node.FileCPUs, node.CPUs{Set: unit.CPUSetOf(0)}, node.CPUs{Set: unit.CPUSetOf(1)}, node.CPUs{Set: unit.CPUSetOf(0, 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsBetween(c.file, c.from, c.to, c.now); got != c.want {
				t.Errorf("Between(%v, %v, %v, %v) = %v, want %v", c.file, c.from, c.to, c.now, got, c.want)
			}
		})
	}
}

func TestCodeWithoutDataIsOnTheWay(t *testing.T) {
	one, all := node.Ways{0: 1}, node.Ways{0: 7}
	for name, c := range map[string]struct {
		now  node.L3
		want bool
	}{
		"half":              {node.L3OfParts(one, all), true},
		"done":              {node.L3Of(one), true},
		"another component": {node.L3OfParts(node.Ways{0: 3}, all), false},
	} {
		if got := IsBetween(node.FileL3, node.L3Of(all), node.L3Of(one), c.now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
