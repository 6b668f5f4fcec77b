package node

import (
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Usage holds the counters of the node or of one workload. The counters of the node
// start at boot, and those of a workload when its cgroup is created. Package trend
// computes rates from two snapshots. A counter that could not be read is absent.
type Usage struct {
	// CPU is the CPU time that was used since boot, or since the cgroup was created.
	CPU Maybe[time.Duration] `json:"cpu,omitzero"`
	// PerCPU is the CPU time that was used on each CPU. It is nil if this time is not counted.
	PerCPU map[unit.CPU]time.Duration `json:"per_cpu,omitempty"`
	// Throttled is the time for which a CPU quota throttled the workload.
	Throttled Maybe[time.Duration] `json:"throttled,omitzero"`
	// Periods is the number of quota periods in which the workload ran. In
	// ThrottledPeriods of them it used up its quota, and the kernel throttled
	// it.
	Periods          Maybe[int64] `json:"periods,omitzero"`
	ThrottledPeriods Maybe[int64] `json:"throttled_periods,omitzero"`
	// Threads is the number of the workload's threads. Runnable is the number of
	// threads that run, or wait for a CPU or for quota. Both are counted only
	// while the quota throttles the workload in most periods.
	Threads  Maybe[int] `json:"threads,omitzero"`
	Runnable Maybe[int] `json:"runnable,omitzero"`
	// Steal is the time for which CPUs of the node had work, but the hypervisor
	// ran something else.
	Steal Maybe[time.Duration] `json:"steal,omitzero"`
	// Delay is the run-queue delay of the threads.
	Delay RunQueueDelay `json:"delay,omitzero"`
	// Requests are the requests that a workload with an objective for them has
	// answered.
	Requests Requests `json:"requests,omitzero"`
	// Memory is the memory that is charged to the workload, including page cache.
	// For the node, it is the total memory minus MemAvailable of /proc/meminfo.
	Memory Maybe[unit.Bytes] `json:"memory,omitzero"`
	// WorkingSet is Memory without the page cache that was not used lately
	// (inactive_file), as the kubelet measures it.
	WorkingSet Maybe[unit.Bytes] `json:"working_set,omitzero"`
	// Free is the memory of the node that holds nothing (MemFree). It is absent for a workload.
	Free Maybe[unit.Bytes] `json:"free,omitzero"`
	// Refaults is the number of pages that the kernel reclaimed and soon read
	// back. It grows if the working set does not fit into memory.
	Refaults Maybe[int64] `json:"refaults,omitzero"`
	// Read and Written are the bytes read from and written to block devices.
	Read     Maybe[unit.Bytes] `json:"read,omitzero"`
	Written  Maybe[unit.Bytes] `json:"written,omitzero"`
	Pressure Pressure          `json:"pressure,omitzero"`
	// SlowAt is the time, on the clock of Snapshot.At, for which Refaults and Pressure of a
	// workload are known. It is older than the snapshot where not each one reads them.
	SlowAt time.Time `json:"slow_at,omitzero"`
	// Reclaim says what the kernel has reclaimed from a workload because Tenon asked for it.
	Reclaim Reclaim `json:"reclaim,omitzero"`
}

// Pressure is the time that tasks waited for each resource
// (Documentation/accounting/psi.rst, Linux 4.20).
type Pressure struct {
	CPU    Stall `json:"cpu,omitzero"`
	Memory Stall `json:"memory,omitzero"`
	IO     Stall `json:"io,omitzero"`
}

// A Stall holds the time in which at least one task waited, and in which all tasks waited.
type Stall struct {
	Some Maybe[time.Duration] `json:"some,omitzero"`
	Full Maybe[time.Duration] `json:"full,omitzero"`
}

// RunQueueDelay is the time that runnable threads waited for a CPU.
type RunQueueDelay struct {
	// Sum is the total of all waits.
	Sum Maybe[time.Duration] `json:"sum,omitzero"`
	// Counts are the numbers of waits by length. Bucket 0 counts waits below 256 ns, and
	// each further bucket has twice the upper bound of the previous one. The last bucket
	// counts all longer waits. Counts is nil if the source has only the sum.
	Counts []uint64 `json:"counts,omitempty"`
	// Timeslices is the number of times that a thread got a CPU, after a wait
	// or at once. If Counts is nil, Sum divided by Timeslices is the mean wait.
	Timeslices Maybe[int64] `json:"timeslices,omitzero"`
}

// A Wait says how long one workload (Waiter) waited for CPUs on which another
// one (Runner) ran. Counting begins when Tenon begins to watch the waiter.
type Wait struct {
	Waiter WorkloadID `json:"waiter"`
	// Runner is another workload, the waiting workload itself, or one of the names below.
	Runner WorkloadID    `json:"runner"`
	Time   time.Duration `json:"time"`
}

// Runners that are not workloads. No cgroup has such a name.
const (
	RunnerKernel    WorkloadID = "(kernel)"    // threads of the kernel
	RunnerIdle      WorkloadID = "(idle)"      // no thread: the CPU was waking from idle, or a quota throttled the waiter
	RunnerOthers    WorkloadID = "(others)"    // work that no rule matches
	RunnerElsewhere WorkloadID = "(elsewhere)" // unknown: the waiter moved to another CPU meanwhile
)

// RestOf returns the name under which Waits adds up the workloads of class c
// that have no entry of their own: workloads that have ended and, if there are
// too many, those that ran least.
func RestOf(c Class) WorkloadID { return "(other " + WorkloadID(c) + ")" }
