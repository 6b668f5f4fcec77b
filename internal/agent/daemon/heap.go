package daemon

import (
	"os"
	"runtime/debug"
)

// heapGrowth is the growth of the heap, in percent, that starts a garbage
// collection. With a hundred workloads every tick allocates a snapshot of about
// 300 KiB. With Go's default of 100, garbage collection took a tenth of
// tenond's CPU time. The value 200 costs 4 MiB of memory
// (docs/experiments/2026-11-22-agent-cost).
const heapGrowth = 200

// letHeapGrow applies heapGrowth, unless the environment sets GOGC.
func letHeapGrow() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
