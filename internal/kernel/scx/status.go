package scx

import (
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// delayBuckets is the number of buckets of node.SchedulerStatus.ExpelDelay.
const delayBuckets = 24

// A Status is the status of the scheduler since Load, with what only callers of
// this package need. At is zero.
type Status struct {
	node.SchedulerStatus
	Exit Exit // the end of the scheduler; ExitNone while it runs
	// Enabled is the number of schedulers that were loaded on this machine since
	// boot. Rejected is the number of threads that sched_ext refused (files
	// enable_seq, nr_rejected).
	Enabled, Rejected uint64
	Strays            uint64 // threads of BE groups seen outside of sched_ext
	Pods              [Slots]PodStatus
	Beat              time.Duration // since the last heartbeat
}

// A PodStatus holds the counters of a slot.
type PodStatus struct {
	Run       time.Duration
	Wait      time.Duration // total waiting time of its threads before they ran
	Throttled uint64        // periods in which it used up its quota
}
