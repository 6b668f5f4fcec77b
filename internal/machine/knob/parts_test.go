package knob

import (
	"maps"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestEveryKnobIsInTheTable checks that the table has each knob. The error
// names the one that is missing.
func TestEveryKnobIsInTheTable(t *testing.T) {
	all := maps.Clone(combineFuncs)
	for _, f := range node.FilesOf(node.CategoryMark, node.CategoryScheduler, node.CategoryThreads, node.CategoryOrder) {
		all[f] = single[node.Value]
	}
	for _, l := range node.LimitFiles {
		all[l.File] = single[node.Value]
	}
	if wrong := node.MissingFiles(all); wrong != "" {
		t.Error(wrong)
	}
}

// released returns the value that a release gives to a knob: each part with a
// value of Tenon gets its value from before, and each other part stays.
func released(f node.File, before, written, pending, now node.Value) node.Value {
	return ByPart(f, now, Traces(f, before, written, pending), before, now)
}

// TestAnInterruptedWriteIsUndone has knobs with the values that a killed write
// can leave. A release must restore the value from before.
func TestAnInterruptedWriteIsUndone(t *testing.T) {
	const ms = time.Millisecond
	idle, plain := node.CPUWeight{Idle: true}, node.CPUWeight{Weight: unit.WeightOfShares(333)}
	one, all := node.Ways{0: 1}, node.Ways{0: 7}
	for name, c := range map[string]struct {
		file          node.File
		from, to, now node.Value
		undone        bool
	}{
		"the old value":                        {node.FilePIDs, node.Maximum{Max: 1}, node.Maximum{Max: 2}, node.Maximum{Max: 1}, true},
		"the new value":                        {node.FilePIDs, node.Maximum{Max: 1}, node.Maximum{Max: 2}, node.Maximum{Max: 2}, true},
		"another value":                        {node.FilePIDs, node.Maximum{Max: 1}, node.Maximum{Max: 2}, node.Maximum{Max: 3}, false},
		"idle cleared and weight not yet":      {node.FileCPUWeight, idle, plain, node.CPUWeight{Weight: unit.WeightOf(100)}, true},
		"a default weight that was never idle": {node.FileCPUWeight, plain, idle, node.CPUWeight{Weight: unit.WeightOf(100)}, false},
		"new period with old quota":            {node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms}, node.CPUMax{Quota: 50 * ms, Period: 40 * ms}, true},
		"no quota on the way":                  {node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms}, node.CPUMax{Quota: node.NoQuota, Period: 100 * ms}, true},
		"burst lowered and quota not yet":      {node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms, Burst: 50 * ms}, node.CPUMax{Quota: 20 * ms, Period: 100 * ms, Burst: 5 * ms}, node.CPUMax{Quota: 50 * ms, Period: 100 * ms, Burst: 5 * ms}, true},
		"no burst on the way":                  {node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms, Burst: 50 * ms}, node.CPUMax{Quota: 20 * ms, Period: 100 * ms, Burst: 5 * ms}, node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, true},
		"a quota of another component":         {node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms}, node.CPUMax{Quota: 33 * ms, Period: 100 * ms}, false},
		"new memory.high with old memory.max":  {node.FileMemory, node.NoMemoryLimit, node.Memory{High: 1 << 20, Max: 2 << 20}, node.Memory{High: 1 << 20, Max: unit.MaxBytes}, true},
		"a set has one part":                   {node.FileCPUs, node.CPUs{Set: unit.CPUSetOf(0)}, node.CPUs{Set: unit.CPUSetOf(1)}, node.CPUs{Set: unit.CPUSetOf(0, 1)}, false},
		"code without data":                    {node.FileL3, node.L3Of(all), node.L3Of(one), node.L3OfParts(one, all), true},
		"code and data":                        {node.FileL3, node.L3Of(all), node.L3Of(one), node.L3Of(one), true},
	} {
		t.Run(name, func(t *testing.T) {
			want := c.now
			if c.undone {
				want = c.from
			}
			if got := released(c.file, c.from, nil, c.to, c.now); got != want {
				t.Errorf("%v is released as %v, want %v", c.now, got, want)
			}
		})
	}
}

// TestAPartOfAnotherComponentStays has knobs of which another component has
// written a part after Tenon. A release must restore the other parts only.
func TestAPartOfAnotherComponentStays(t *testing.T) {
	const ms, gib = time.Millisecond, unit.Bytes(1 << 30)
	a, b := unit.Device{Major: 8}, unit.Device{Major: 254}
	limits := func(a1, b1 int64) node.IOMax {
		m := map[unit.Device]node.IOLimits{}
		for d, rate := range map[unit.Device]int64{a: a1, b: b1} {
			m[d] = node.NoIOLimits
			if rate > 0 {
				m[d] = node.IOLimits{ReadBPS: rate, WriteBPS: node.NoIORate, ReadIOPS: node.NoIORate, WriteIOPS: node.NoIORate}
			}
		}
		return node.IOMaxOf(m)
	}
	targets := func(a1, b1 time.Duration) node.IOLatency {
		return node.IOLatencyOf(map[unit.Device]time.Duration{a: a1, b: b1})
	}
	for name, c := range map[string]struct {
		file                       node.File
		before, written, now, want node.Value
	}{
		"memory.max of the container runtime": {
			node.FileMemory, node.Memory{High: unit.MaxBytes, Max: 4 * gib}, node.Memory{High: 2 * gib, Max: 4 * gib},
			node.Memory{High: 2 * gib, Max: unit.MaxBytes}, node.NoMemoryLimit,
		},
		"memory.low of another component": {
			node.FileMemory, node.NoMemoryLimit, node.Memory{Min: gib, Low: 2 * gib, High: unit.MaxBytes, Max: unit.MaxBytes},
			node.Memory{Min: gib, Low: 3 * gib, High: unit.MaxBytes, Max: unit.MaxBytes}, node.Memory{Low: 3 * gib, High: unit.MaxBytes, Max: unit.MaxBytes},
		},
		"memory.low that has its value from before": {
			node.FileMemory, node.NoMemoryLimit, node.Memory{Min: gib, Low: 2 * gib, High: unit.MaxBytes, Max: unit.MaxBytes},
			node.Memory{Min: gib, High: unit.MaxBytes, Max: unit.MaxBytes}, node.NoMemoryLimit,
		},
		"a limit of another device": {node.FileIOMax, limits(0, 0), limits(10, 0), limits(10, 20), limits(0, 20)},
		"no limit any more":         {node.FileIOMax, limits(5, 7), limits(10, 20), limits(10, 0), limits(5, 0)},
		"a target of another device": {
			node.FileIOLatency, targets(ms, 0), targets(2*ms, 0), targets(2*ms, 3*ms), targets(ms, 3*ms),
		},
		"a weight of another device": {
			node.FileIOWeight, node.IOWeightOf(100, nil), node.IOWeightOf(1, nil),
			node.IOWeightOf(1, map[unit.Device]int64{b: 50}), node.IOWeightOf(100, map[unit.Device]int64{b: 50}),
		},
		"a quota without Tenon's burst": {
			node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 50 * ms, Period: 100 * ms, Burst: 20 * ms},
			node.CPUMax{Quota: 70 * ms, Period: 100 * ms, Burst: 20 * ms}, node.CPUMax{Quota: 70 * ms, Period: 100 * ms},
		},
		"a quota below the burst from before": {
			node.FileCPUMax, node.CPUMax{Quota: 50 * ms, Period: 100 * ms, Burst: 40 * ms}, node.CPUMax{Quota: 20 * ms, Period: 100 * ms},
			node.CPUMax{Quota: 30 * ms, Period: 100 * ms}, node.CPUMax{Quota: 30 * ms, Period: 100 * ms, Burst: 30 * ms},
		},
		"a quota keeps its period": {
			node.FileCPUMax, node.CPUMax{Quota: node.NoQuota, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms},
			node.CPUMax{Quota: 30 * ms, Period: 40 * ms}, node.CPUMax{Quota: 30 * ms, Period: 40 * ms},
		},
		"the data of a cache": {
			node.FileL3, node.L3Of(node.Ways{0: 7}), node.L3Of(node.Ways{0: 1}),
			node.L3OfParts(node.Ways{0: 1}, node.Ways{0: 3}), node.L3OfParts(node.Ways{0: 7}, node.Ways{0: 3}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := released(c.file, c.before, c.written, nil, c.now); got != c.want {
				t.Errorf("%v is released as %v, want %v", c.now, got, c.want)
			}
		})
	}
}
