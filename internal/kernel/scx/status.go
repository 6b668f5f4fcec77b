package scx

import (
	"time"
)

// A Status is the state of the scheduler and its counters since Load. Counters
// only grow. Values are read one by one while the kernel goes on counting, so
// sums over them agree only nearly.
type Status struct {
	State   string // of sched_ext, in the kernel's word: enabled, disabled, …
	Running bool   // sched_ext is enabled, and the scheduler is this one
	Variant Variant
	Since   time.Time // since Load
	Exit    Exit      // of kind ExitNone while it runs
	// Enabled counts the schedulers that were loaded on this machine since
	// boot, Rejected the threads that were refused (files enable_seq,
	// nr_rejected).
	Enabled, Rejected uint64

	Run [classes]time.Duration // by Class; BE is what ran as SCHED_EXT
	// Strayed is the run time of threads in BE groups outside of sched_ext, which
	// is in no class of Run.
	Strayed time.Duration
	Idle    time.Duration
	Pods    [Slots]PodStatus
	LLCs    []LLCStatus // by number

	Counts
	// ExpelIdle is how long CPUs were idle while BE was waiting because LSX ran
	// beside them; HoldIdle is how long they were idle afterwards because of
	// Params.Hold.
	ExpelIdle, HoldIdle time.Duration
	// ExpelDelay counts, for each n, how often BE needed less than 2^(n+8) ns
	// to leave after LSX had come beside it.
	ExpelDelay [24]uint64

	OldestWait time.Duration // of the BE threads that wait now
	Parked     int           // threads of pods that have used up their quota
	Beat       time.Duration // since the last heartbeat
}

// Counts has the number of each event since Load.
type Counts struct {
	Switches    uint64 // context switches seen
	Expels      uint64 // LSX came, and BE was sent away from the sibling
	Refusals    uint64 // BE wanted to run while LSX was beside it
	Starts      uint64 // BE threads put on a CPU
	Violations  uint64 // of these: beside running LSX, outside of relief; ended at once
	Races       uint64 // of these: LSX came at the same moment
	Resumed     uint64 // of these: continued without a decision after a preemption
	Relief      uint64 // BE allowed beside LSX because it had waited too long
	Preempted   uint64 // a thread of a higher class took the CPU from BE
	Reenqueued  uint64 // BE threads taken back from a CPU that was lost
	Exhausted   uint64 // pods that ran out of quota
	Capped      uint64 // BE refused by the cap of all BE
	Headroom    uint64 // BE not placed on an idle core to leave it to LS
	Urgent      uint64 // threads that went to the urgent queue
	Pinned      uint64 // threads that went to the queue of one CPU
	KicksExpel  uint64 // CPUs sent a preemption
	KicksWake   uint64 // idle CPUs woken for BE
	KicksReaper uint64 // of Preempted and Woken: sent by the timer
	Drift       uint64 // CPUs whose recorded class was wrong and was corrected
	Strays      uint64 // stray threads seen
	LongWaits   uint64 // long waits reported
	Lost        uint64 // events that were lost because the ring was full
}

// A PodStatus has the counters of a slot.
type PodStatus struct {
	Run       time.Duration
	Wait      time.Duration // of its threads, until they ran
	Throttled uint64        // periods in which it used up its quota
}

// An LLCStatus has the queues of the CPUs that share a last-level cache.
type LLCStatus struct {
	Queued int // threads that wait for any of these CPUs
	Urgent int // threads that go before those
	Pinned int // threads that wait for one of these CPUs
}
