package proc

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// SchedStat holds the scheduling counters of one thread since its start.
type SchedStat struct {
	Run    time.Duration // on a CPU
	Delay  time.Duration // runnable, waiting for a CPU
	Slices int64         // number of times that it was put on a CPU
}

// SchedStat reads /proc/PID/task/TID/schedstat
// (Documentation/scheduler/sched-stats.rst; needs CONFIG_SCHED_INFO). If tid is
// 0, it reads /proc/PID/schedstat, which is that of the main thread only. If
// the thread has ended, it returns ErrGone.
func (fs FS) SchedStat(pid, tid int) (SchedStat, error) {
	return taskFile(fs, pid, tid, "schedstat", parseSchedStat)
}

// parseSchedStat reads a line such as "391451 12000 7": ns on CPU, ns of
// waiting, and the number of timeslices.
func parseSchedStat(text string) (SchedStat, error) {
	f := strings.Fields(text)
	if len(f) != 3 {
		return SchedStat{}, fmt.Errorf("%q: want 3 numbers", text)
	}
	var n [3]int64
	for i := range f {
		u, err := strconv.ParseUint(f[i], 10, 64)
		if err != nil || u > math.MaxInt64 {
			return SchedStat{}, fmt.Errorf("%q: want 3 numbers", text)
		}
		n[i] = int64(u)
	}
	return SchedStat{Run: time.Duration(n[0]), Delay: time.Duration(n[1]), Slices: n[2]}, nil
}
