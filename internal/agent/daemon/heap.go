package daemon

import (
	"os"
	"runtime/debug"
)

// heapGrowth is the growth of the heap, in percent, that starts a garbage
// collection. Every tick allocates a snapshot of some 300 KiB with a hundred
// workloads. With Go's default of 100 garbage collection took a tenth of the
// CPU time of tenond; 200 costs 4 MiB of memory
// (docs/experiments/2026-11-22-agent-cost).
const heapGrowth = 200

// letHeapGrow sets heapGrowth unless the owner set GOGC.
func letHeapGrow() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
