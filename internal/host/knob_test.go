package host

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/journal"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/unit"
)

// TestMemoryPutBackInPartIsStillOurs: a kubelet that starts clears memory.low
// above pods, and knows nothing of memory.min.
func TestMemoryPutBackInPartIsStillOurs(t *testing.T) {
	before, written := node.NoMemoryLimit, node.Memory{Min: 1 << 20, Low: 2 << 20, High: unit.MaxBytes, Max: unit.MaxBytes}
	touch := journal.Touch{Before: before, Written: written}
	cleared, others := written, written
	cleared.Low, others.Low = 0, 3<<20
	for now, want := range map[node.Memory]bool{before: true, written: true, cleared: true, others: false} {
		if got := new(Host).ours(touch, now); got != want {
			t.Errorf("%v is ours: %v", now, got)
		}
	}
}

func TestAMixOfTwoValuesIsBetweenThem(t *testing.T) {
	const ms = time.Millisecond
	idle, plain := node.CPUWeight{Idle: true}, node.CPUWeight{Weight: unit.WeightOfShares(333)}
	for name, c := range map[string]struct {
		from, to, now node.Value
		want          bool
	}{
		"the old value":                         {node.PIDs{Max: 1}, node.PIDs{Max: 2}, node.PIDs{Max: 1}, true},
		"the new value":                         {node.PIDs{Max: 1}, node.PIDs{Max: 2}, node.PIDs{Max: 2}, true},
		"another value":                         {node.PIDs{Max: 1}, node.PIDs{Max: 2}, node.PIDs{Max: 3}, false},
		"idle cleared and weight not yet":       {idle, plain, node.CPUWeight{Weight: unit.WeightOf(100)}, true},
		"a default weight that was never idle":  {plain, idle, node.CPUWeight{Weight: unit.WeightOf(100)}, false},
		"new period with old quota":             {node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms}, node.CPUMax{Quota: 50 * ms, Period: 40 * ms}, true},
		"no quota on the way":                   {node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms}, node.CPUMax{Quota: node.NoQuota, Period: 100 * ms}, true},
		"burst lowered and quota not yet":       {node.CPUMax{Quota: 50 * ms, Period: 100 * ms, Burst: 50 * ms}, node.CPUMax{Quota: 20 * ms, Period: 100 * ms, Burst: 5 * ms}, node.CPUMax{Quota: 50 * ms, Period: 100 * ms, Burst: 5 * ms}, true},
		"a quota of somebody else":              {node.CPUMax{Quota: 50 * ms, Period: 100 * ms}, node.CPUMax{Quota: 20 * ms, Period: 40 * ms}, node.CPUMax{Quota: 33 * ms, Period: 100 * ms}, false},
		"a new memory.high with old memory.max": {node.NoMemoryLimit, node.Memory{High: 1 << 20, Max: 2 << 20}, node.Memory{High: 1 << 20, Max: unit.MaxBytes}, true},
		"another memory.max":                    {node.NoMemoryLimit, node.Memory{High: 1 << 20, Max: 2 << 20}, node.Memory{High: 1 << 20, Max: 3 << 20}, false},
		"a set is never in between":             {node.CPUs{Set: unit.CPUSetOf(0)}, node.CPUs{Set: unit.CPUSetOf(1)}, node.CPUs{Set: unit.CPUSetOf(0, 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := between(c.from, c.to, c.now); got != c.want {
				t.Errorf("between(%v, %v, %v) = %v, want %v", c.from, c.to, c.now, got, c.want)
			}
		})
	}
}
