package change

import (
	"testing"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestMemoryPutBackInPartIsStillOurs clears memory.low but not memory.min. A
// kubelet does this above pods when it starts. The value must still count as
// Tenon's.
func TestMemoryPutBackInPartIsStillOurs(t *testing.T) {
	before, written := node.NoMemoryLimit, node.Memory{Min: 1 << 20, Low: 2 << 20, High: unit.MaxBytes, Max: unit.MaxBytes}
	touch := journal.Touch{Before: before, Written: written}
	cleared, others := written, written
	cleared.Low, others.Low = 0, 3<<20
	for now, want := range map[node.Memory]bool{before: true, written: true, cleared: true, others: false} {
		if got := new(Knobs).HoldsOurs(node.Knob{File: node.FileMemory}, touch, now); got != want {
			t.Errorf("%v is ours: %v", now, got)
		}
	}
}
