package daemon

import (
	"os"
	"runtime/debug"
)

// heapGrowth is the value of GOGC: the growth of the heap, in percent, that
// starts a garbage collection. With a hundred workloads, each tick allocates a
// snapshot of about 300 KiB. With Go's default of 100, garbage collection took
// a tenth of tenond's CPU time. The value 200 costs 4 MiB of memory
// (docs/experiments/2026-11-22-agent-cost).
const heapGrowth = 200

// letHeapGrow sets GOGC to heapGrowth, unless the environment sets GOGC.
func letHeapGrow() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}
