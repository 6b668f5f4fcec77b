package launch

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A Result says how a command exited and which resources it used. Its JSON keys
// are stable.
type Result struct {
	Name  string     `json:"name"`
	Class node.Class `json:"class"`
	// Status is the status with which tenon run exits. It is that of the
	// command or, if a signal ended the command, 128 plus the number of the
	// signal.
	Status int    `json:"exit_status"`
	Signal string `json:"signal,omitempty"`
	// WallSeconds is the time from the first instruction of the command until
	// all its processes have ended.
	WallSeconds float64 `json:"wall_seconds"`
	// CPUSeconds is the CPU time of the group. If there is no group, it is that
	// of the command and of those children for which it waited.
	CPUSeconds float64 `json:"cpu_seconds"`
	// ThrottledSeconds is the time for which the group had runnable threads but no
	// quota left, summed over CPUs. It is null if there is no group.
	ThrottledSeconds node.Maybe[float64] `json:"throttled_seconds"`
	// WaitedSeconds is the time that threads were runnable and waited for a CPU,
	// summed over threads.
	WaitedSeconds float64 `json:"waited_seconds"`
	// WaitedCoverage says how complete WaitedSeconds is: it is the part of
	// CPUSeconds, from 0 to 1, that belongs to threads that were sampled. If it
	// is below 1, WaitedSeconds is too small.
	WaitedCoverage float64 `json:"waited_coverage_ratio"`
	// OOMKills is the number of processes that the kernel killed because of the
	// memory limit.
	OOMKills int64 `json:"oom_kills"`
}

// coverageWhole is a coverage. If the coverage is at least this high, the
// sampled delays count as complete.
const coverageWhole = 0.95

// account sets which resources were used, from the counters of the group. If
// there is no group, it uses the CPU time of the process.
func (r *run) account(to *Result, cpu time.Duration, d Delay) {
	if r.made {
		if s, err := r.Tree.CPUStat(string(r.workload.Cgroup)); err == nil {
			cpu = s.Usage
			to.ThrottledSeconds = node.Some(s.Throttled.Seconds())
		}
		if e, err := r.Tree.MemoryEvents(string(r.workload.Cgroup)); err == nil {
			to.OOMKills = e.OOMKill
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
	if r.OOMKills > 0 {
		fmt.Fprintf(&b, ", %d killed at the memory limit", r.OOMKills)
	}
	return b.String()
}
