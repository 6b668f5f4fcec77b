package scx

import (
	"time"
)

// A Status is the state of the scheduler and its counters since Load. Counters never
// decrease. The values are copied one by one while the kernel changes them. So the sum
// of several counters may differ a little from another counter that should equal it.
type Status struct {
	State   string // the state of sched_ext: enabled, disabled, …
	Running bool   // sched_ext is enabled, and the scheduler is this one
	Variant Variant
	Since   time.Time // the time of Load
	Exit    Exit      // the end of the scheduler; ExitNone while it runs
	// Enabled is the number of schedulers that were loaded on this machine since
	// boot. Rejected is the number of threads that sched_ext refused (files
	// enable_seq, nr_rejected).
	Enabled, Rejected uint64

	Run [classes]time.Duration // by Class; BE is the run time of SCHED_EXT threads
	// Strayed is the time for which threads of BE groups ran outside of sched_ext.
	// No class of Run includes this time.
	Strayed time.Duration
	Idle    time.Duration
	Pods    [Slots]PodStatus
	LLCs    []LLCStatus // by number

	Counts
	// LSX is the class that keeps BE off siblings. ExpelIdle is the time for which
	// CPUs were idle although BE waited, because LSX ran on the sibling. HoldIdle
	// is the same for the time Params.Hold after LSX has left the sibling.
	ExpelIdle, HoldIdle time.Duration
	// ExpelDelay is a histogram of the time from the start of LSX on a CPU
	// until BE had left the sibling. Bucket 0 counts times below 256 ns, and
	// each further bucket has twice the upper bound of the previous one.
	ExpelDelay [24]uint64

	OldestWait time.Duration // the longest wait of the BE threads that wait now
	Parked     int           // threads that wait for the quota of their pod
	Beat       time.Duration // since the last heartbeat
}

// Counts holds how often each event has happened since Load.
type Counts struct {
	Switches    uint64 // context switches seen
	Expels      uint64 // LSX started, and BE was sent off the sibling
	Refusals    uint64 // BE was refused because LSX ran on the sibling
	Starts      uint64 // BE threads put on a CPU
	Violations  uint64 // of Starts: on the sibling of running LSX, although Relief did not allow it; stopped at once
	Races       uint64 // of Violations: LSX started at the same moment
	Resumed     uint64 // of Starts: continued without a decision after a preemption
	Relief      uint64 // BE was allowed on the sibling of LSX because it had waited too long
	Preempted   uint64 // a thread of a higher class took the CPU from BE
	Reenqueued  uint64 // BE threads taken back from a CPU that BE lost
	Exhausted   uint64 // times that a pod ran out of quota
	Capped      uint64 // times that the cap refused BE
	Headroom    uint64 // times that BE was kept off an idle core in favour of LS
	Urgent      uint64 // threads that went to the urgent queue
	Pinned      uint64 // threads that went to the queue of one CPU
	KicksExpel  uint64 // requests to a CPU to preempt BE
	KicksWake   uint64 // idle CPUs woken up for BE
	KicksReaper uint64 // of KicksExpel and KicksWake: sent by the timer
	Drift       uint64 // times that the recorded class of a CPU's thread was wrong and was corrected
	Strays      uint64 // threads of BE groups seen outside of sched_ext
	LongWaits   uint64 // long waits reported
	Lost        uint64 // events that were lost because the ring was full
}

// A PodStatus holds the counters of a slot.
type PodStatus struct {
	Run       time.Duration
	Wait      time.Duration // total waiting time of its threads before they ran
	Throttled uint64        // periods in which it used up its quota
}

// An LLCStatus holds the queues of the CPUs that share a last-level cache.
type LLCStatus struct {
	Queued int // threads that wait for any of these CPUs
	Urgent int // threads that run before the queued ones
	Pinned int // threads that wait for one particular CPU
}
