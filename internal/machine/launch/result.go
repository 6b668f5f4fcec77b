package launch

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A Result holds how a command ended and which resources it used. Its JSON keys
// are stable.
type Result struct {
	Name  string     `json:"name"`
	Class node.Class `json:"class"`
	// Status is the exit status of tenon run. It is the status of the command
	// or, if a signal ended the command, 128 plus the signal's number.
	Status int    `json:"exit_status"`
	Signal string `json:"signal,omitempty"`
	// WallSeconds is the time from the first instruction of the command until
	// all its processes have ended.
	WallSeconds float64 `json:"wall_seconds"`
	// CPUSeconds is the CPU time of the cgroup. Without a cgroup, it is the CPU
	// time of the command and of those children for which the command waited.
	CPUSeconds float64 `json:"cpu_seconds"`
	// ThrottledSeconds is the time for which the cgroup had runnable threads
	// but no quota left, summed over CPUs. If there is no cgroup, it is null.
	ThrottledSeconds node.Maybe[float64] `json:"throttled_seconds"`
	// WaitedSeconds is the time for which threads were runnable but waited for
	// a CPU, summed over threads.
	WaitedSeconds float64 `json:"waited_seconds"`
	// WaitedCoverage shows how complete WaitedSeconds is. It is the fraction of
	// CPUSeconds, from 0 to 1, that sampled threads used. If it is below 1,
	// WaitedSeconds lacks some waits.
	WaitedCoverage float64 `json:"waited_coverage_ratio"`
	// OOMKills is the number of processes that the kernel killed because of the
	// cgroup's memory limit.
	OOMKills node.Maybe[int64] `json:"oom_kills,omitzero"`
}

// coverageWhole is the least WaitedCoverage at which WaitedSeconds counts as
// complete.
const coverageWhole = 0.95

// account fills in the used resources from the counters of the cgroup. For a
// run without a cgroup, it uses cpu, the CPU time of the process.
func (r *run) account(to *Result, cpu time.Duration, d Delay) {
	if r.made {
		if s, err := r.Tree.CPUStat(string(r.workload.Cgroup)); err == nil {
			cpu = s.Usage
			to.ThrottledSeconds = node.Some(s.Throttled.Seconds())
		}
		if e, err := r.Tree.MemoryEvents(string(r.workload.Cgroup)); err == nil {
			to.OOMKills = node.Some(e.OOMKill)
		}
	}
	cpu = max(cpu, 0)
	to.CPUSeconds = cpu.Seconds()
	to.WaitedSeconds = d.Waited.Seconds()
	if cpu > 0 {
		to.WaitedCoverage = min(d.Seen.Seconds()/cpu.Seconds(), 1)
	}
}

// String returns the last line that tenon run prints.
func (r Result) String() string {
	var b strings.Builder
	cpus := 0.0
	if r.WallSeconds > 0 {
		cpus = r.CPUSeconds / r.WallSeconds
	}
	fmt.Fprintf(&b, "%s (%s) got %.2f s of CPU in %.2f s (%.2f CPUs)", r.Name, r.Class, r.CPUSeconds, r.WallSeconds, cpus)
	if t, known := r.ThrottledSeconds.Value(); known {
		fmt.Fprintf(&b, ", throttled %.2f s", t)
	}
	least := ""
	if r.WaitedCoverage < coverageWhole {
		least = "at least "
	}
	fmt.Fprintf(&b, ", waited %s%.2f s for a CPU", least, r.WaitedSeconds)
	if r.Signal != "" {
		fmt.Fprintf(&b, ", ended by %s", r.Signal)
	}
	if n := r.OOMKills.Or(0); n > 0 {
		fmt.Fprintf(&b, ", %d killed at the memory limit", n)
	}
	return b.String()
}
