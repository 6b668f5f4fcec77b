package node

import (
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// Usage holds the counters of the node or of one workload. Counters only grow
// while the node is up or the cgroup exists; rates are made from two snapshots
// by package trend. What could not be read is absent.
type Usage struct {
	// CPU is the CPU time used since boot or since the cgroup was made.
	CPU Maybe[time.Duration] `json:"cpu,omitzero"`
	// PerCPU is the CPU time used on each CPU. Nil: not counted.
	PerCPU map[unit.CPU]time.Duration `json:"per_cpu,omitempty"`
	// Throttled is the time spent throttled by a CPU quota.
	Throttled Maybe[time.Duration] `json:"throttled,omitzero"`
	// Periods is the number of periods of its quota in which it ran, and
	// ThrottledPeriods the number of these in which it was throttled.
	Periods          Maybe[int64] `json:"periods,omitzero"`
	ThrottledPeriods Maybe[int64] `json:"throttled_periods,omitzero"`
	// Steal is the time that a hypervisor kept from the node's CPUs.
	Steal Maybe[time.Duration] `json:"steal,omitzero"`
	// Delay is the run-queue delay of its threads.
	Delay RunQueueDelay `json:"delay,omitzero"`

	// Memory is the memory charged, with page cache; of the node, what is not
	// available to new work.
	Memory Maybe[unit.Bytes] `json:"memory,omitzero"`
	// WorkingSet is Memory without the page cache that was not used lately
	// (inactive_file), the measure of kubelet.
	WorkingSet Maybe[unit.Bytes] `json:"working_set,omitzero"`
	// Refaults is the number of pages that were read back soon after they had
	// been reclaimed, which shows that a working set does not fit.
	Refaults Maybe[int64] `json:"refaults,omitzero"`

	// Read and Written are what went to and from block devices.
	Read    Maybe[unit.Bytes] `json:"read,omitzero"`
	Written Maybe[unit.Bytes] `json:"written,omitzero"`

	Pressure Pressure `json:"pressure,omitzero"`
}

// Pressure is the time in which tasks stood still for lack of a resource
// (Documentation/accounting/psi.rst, Linux 4.20).
type Pressure struct {
	CPU    Stall `json:"cpu,omitzero"`
	Memory Stall `json:"memory,omitzero"`
	IO     Stall `json:"io,omitzero"`
}

// A Stall is the time in which some of the tasks stood still, and that in
// which all of them did.
type Stall struct {
	Some Maybe[time.Duration] `json:"some,omitzero"`
	Full Maybe[time.Duration] `json:"full,omitzero"`
}

// RunQueueDelay is the time for which threads that could run waited for a CPU.
type RunQueueDelay struct {
	// Sum is the length of all waits together.
	Sum Maybe[time.Duration] `json:"sum,omitzero"`
	// Counts are the numbers of waits by length: bucket n counts those below
	// 256 ns << n that no earlier bucket counts, and the last one all the rest.
	// Nil: the source knows the sum alone.
	Counts []uint64 `json:"counts,omitempty"`
	// Timeslices is the number of times that a thread got a CPU, after a wait or
	// without one. Without Counts, the mean is Sum divided by it.
	Timeslices Maybe[int64] `json:"turns,omitzero"`
}

// A Wait is the time, since the workload was first watched, that it waited
// while a runner had the CPU that it waited for.
type Wait struct {
	Waiter WorkloadID `json:"waiter"`
	// Runner is another workload, the waiter itself, or one of the names below
	// for a runner that is no single workload.
	Runner WorkloadID    `json:"runner"`
	Time   time.Duration `json:"time"`
}

// Runners that are not workloads. No cgroup has such a name.
const (
	RunnerKernel    WorkloadID = "(kernel)"    // threads of the kernel
	RunnerIdle      WorkloadID = "(idle)"      // nobody: the CPU was on its way out of idleness, or a quota kept the waiter away
	RunnerOthers    WorkloadID = "(others)"    // what no rule matches
	RunnerElsewhere WorkloadID = "(elsewhere)" // not known: the waiter was moved meanwhile
)

// RestOf names, as runner or waiter, the workloads of a class that have no name
// of their own here, because there are too many, they ran least, or have ended.
func RestOf(c Class) WorkloadID { return "(other " + WorkloadID(c) + ")" }
