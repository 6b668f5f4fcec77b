package launch

import (
	"fmt"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// A Result is how the command ended and which resources it used. Its JSON keys
// are stable.
type Result struct {
	Name  string     `json:"name"`
	Class node.Class `json:"class"`
	// Status is the status to exit with: the command's own, or 128 and the
	// number of the signal that ended it.
	Status int    `json:"exit_status"`
	Signal string `json:"signal,omitempty"`
	// WallSeconds is the time from the command's first instruction until it
	// and all that it started had ended.
	WallSeconds float64 `json:"wall_seconds"`
	// CPUSeconds is the CPU time of the group; without a group, of the
	// command and of those of its children that it waited for.
	CPUSeconds float64 `json:"cpu_seconds"`
	// ThrottledSeconds is the time that the group had work and no quota left,
	// summed over CPUs; null without a group.
	ThrottledSeconds node.Maybe[float64] `json:"throttled_seconds"`
	// WaitedSeconds is the time that threads were ready to run and waited for
	// a CPU, summed over threads.
	WaitedSeconds float64 `json:"waited_seconds"`
	// WaitedCoverage is the share of CPUSeconds whose threads were sampled,
	// 0 to 1: below it, WaitedSeconds is too small.
	WaitedCoverage float64 `json:"waited_coverage_ratio"`
	// OOMKills is how many of its processes the kernel ended at the memory
	// limit.
	OOMKills int64 `json:"oom_kills"`
}

// coverageWhole is the coverage from which the sampled delays stand for all.
const coverageWhole = 0.95

// account fills in the resources used: from its group or, without one, from the
// CPU time of the process.
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

// String is the final line of tenon run.
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
