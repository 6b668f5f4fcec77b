package scx

import (
	"time"
)

// A Status is what the scheduler does and has done since Load. Counters only
// grow. Values are read one by one while the kernel counts on, so sums agree
// only nearly.
type Status struct {
	State   string // of sched_ext as the kernel names it: enabled, disabled, …
	Running bool   // it is enabled, and the scheduler is ours
	Variant Variant
	Since   time.Time // of Load
	Exit    Exit      // of kind ExitNone while it runs
	// Enabled is how many schedulers were loaded on this machine since boot, and
	// Rejected how many threads were refused (files enable_seq, nr_rejected).
	Enabled, Rejected uint64

	Run [classes]time.Duration // by Class; BE is what ran as SCHED_EXT
	// Strayed is the run time of threads in BE groups outside of sched_ext, which
	// is in no class of Run.
	Strayed time.Duration
	Idle    time.Duration
	Pods    [Slots]PodStatus
	LLCs    []LLCStatus // by number

	Counts
	// ExpelIdle is how long CPUs were idle because LSX ran beside them and BE
	// was waiting; HoldIdle, because of Params.Hold after it.
	ExpelIdle, HoldIdle time.Duration
	// ExpelDelay is how long BE was still there after LSX had come beside it: the
	// count of times below 2^(n+8) ns.
	ExpelDelay [24]uint64

	OldestWait time.Duration // of the BE threads that wait now
	Parked     int           // threads of pods that have used up their quota
	Beat       time.Duration // since the last
}

// Counts count what happened.
type Counts struct {
	Switches    uint64 // context switches seen
	Expels      uint64 // LSX came and BE beside it was sent away
	Refusals    uint64 // BE wanted to run and LSX was beside
	Starts      uint64 // BE threads put on a CPU
	Violations  uint64 // of them: beside running LSX, outside of relief; ended at once
	Races       uint64 // of them: LSX came in the same moment
	Resumed     uint64 // of them: came back without asking after a preemption
	Relief      uint64 // BE let run beside LSX because it had waited too long
	Preempted   uint64 // a thread of a higher class took the CPU from BE
	Reenqueued  uint64 // BE threads taken back from a CPU that was lost
	Exhausted   uint64 // pods that ran out of quota
	Capped      uint64 // BE refused by the cap of all BE
	Headroom    uint64 // BE not placed on an idle core to leave it to LS
	Urgent      uint64 // threads that went to the urgent queue
	Pinned      uint64 // threads that went to the queue of one CPU
	KicksExpel  uint64 // CPUs sent a preemption
	KicksWake   uint64 // idle CPUs woken for BE
	KicksReaper uint64 // of both: by the timer
	Drift       uint64 // CPUs whose recorded class was wrong and was set right
	Strays      uint64 // stray threads seen
	LongWaits   uint64 // long waits reported
	Lost        uint64 // events that found no room
}

// A PodStatus is what a slot has had.
type PodStatus struct {
	Run       time.Duration
	Wait      time.Duration // of its threads, until they were put on a CPU
	Throttled uint64        // periods in which it used up its quota
}

// An LLCStatus is the queues of the CPUs that share a last-level cache.
type LLCStatus struct {
	Queued int // threads that wait for any CPU of it
	Urgent int // threads that go before them
	Pinned int // threads that wait for one CPU of it
}
