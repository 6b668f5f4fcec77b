package daemon

import (
	"os"
	"runtime/debug"
)

// heapGrowth is by how many percent the heap may grow before garbage is
// collected. Every turn makes a snapshot and forgets one, of some 300 KiB with
// a hundred workloads; at Go's 100 a tenth of what tenond costs was collecting
// them, for 4 MiB of memory (docs/experiments/2026-11-22-agent-cost).
const heapGrowth = 200

// letHeapGrow sets how often garbage is collected, unless the owner does by
// GOGC.
func letHeapGrow() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
