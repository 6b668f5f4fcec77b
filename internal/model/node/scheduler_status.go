package node

import "time"

// An IsolationStatus is what the means of isolation do and have done since the
// agent started. It is for people and for metrics: no decision depends on it.
type IsolationStatus struct {
	// Loads is the number of times that the scheduler was loaded, and Exits the
	// number of its ends, by kind.
	Loads uint64              `json:"loads,omitempty"`
	Exits map[ExitKind]uint64 `json:"exits,omitempty"`
	// LastExit is its last end; the zero SchedulerExit: it has not ended yet.
	LastExit SchedulerExit `json:"last_exit,omitzero"`
	// Strays counts BE threads that were found without the policy or the cookie
	// that they should have. Converted counts the threads that got it.
	Strays    uint64 `json:"strays,omitempty"`
	Converted uint64 `json:"converted,omitempty"`
	// Realtime is the number of BE threads with a real-time policy now. Tenon
	// does not change them.
	Realtime int `json:"realtime,omitempty"`
	// OwnSlices is the number of threads that should have the long slice, but
	// have one of their own or are of SCHED_IDLE. Tenon does not change them,
	// and on their CPU the long slice of other threads has no effect.
	OwnSlices int `json:"own_slices,omitempty"`
	// Demotions counts how often a thread had waited too long and went to the
	// kernel's own scheduler for a while. Demoted is the number of those now.
	Demotions uint64 `json:"spills,omitempty"`
	Demoted   int    `json:"spilled,omitempty"`
	// Refused says which orders the loaded scheduler did not take: its table of
	// groups may be full. Empty: it has taken all.
	Refused string `json:"untold,omitempty"`
	// Scheduler is what the scheduler has counted since it was loaded last. It
	// stays after its end; nil: it was never loaded.
	Scheduler *SchedulerStatus `json:"scheduler,omitempty"`
}

// A SchedulerStatus is what the scheduler of best-effort threads does, and has
// counted since it was loaded. Numbers are read one by one while it counts on,
// so sums agree only nearly.
type SchedulerStatus struct {
	At time.Time `json:"at"` // when it was read
	// State is that of sched_ext in the kernel's words: enabled, disabled, …
	State string `json:"state"`
	// Running: it is enabled, and the scheduler is Tenon's.
	Running bool `json:"running"`
	// Variant is the first kernel with the interface that it was built for.
	Variant string    `json:"variant,omitempty"`
	Since   time.Time `json:"since"` // loaded

	// Run is the run time of threads of each class. Strayed is the run time of
	// BE threads outside of the scheduler, Idle the idle time of the CPUs.
	Run     map[SchedulerClass]time.Duration `json:"run_ns,omitempty"`
	Strayed time.Duration                    `json:"strayed_ns"`
	Idle    time.Duration                    `json:"idle_ns"`
	// Wait is the time that its threads waited for a CPU.
	Wait time.Duration `json:"wait_ns"`
	// ExpelIdle is the time that CPUs stayed idle, while BE waited, because a
	// thread that expels ran on the sibling; HoldIdle, for a while after it.
	ExpelIdle time.Duration `json:"expel_idle_ns"`
	HoldIdle  time.Duration `json:"hold_idle_ns"`
	// ExpelDelay counts how long best-effort work was still there after a thread
	// that expels had come beside it, by length: see DelayBound.
	ExpelDelay []uint64 `json:"expel_delay_counts,omitempty"`
	// OldestWait is the longest present wait of a thread.
	OldestWait time.Duration `json:"oldest_wait_ns"`

	SchedulerCounts
	// Queues are the threads that wait for a CPU now, by last-level cache, and
	// Parked how many more wait for their quota.
	Queues []SchedulerQueue `json:"queues,omitempty"`
	Parked int              `json:"parked"`
}

// SchedulerCounts count what happened.
type SchedulerCounts struct {
	Switches   uint64 `json:"switches"`   // context switches seen
	Starts     uint64 `json:"starts"`     // best-effort threads put on a CPU
	Expels     uint64 `json:"expels"`     // sent away because a thread that expels came beside
	Refusals   uint64 `json:"refusals"`   // not let run because one was beside
	Violations uint64 `json:"violations"` // started beside one outside of relief; ended at once
	Races      uint64 `json:"races"`      // of them: it came in the same moment
	Resumed    uint64 `json:"resumed"`    // of them: came back without asking after a preemption
	Relief     uint64 `json:"relief"`     // let run beside one after waiting too long
	Preempted  uint64 `json:"preempted"`  // lost the CPU to a higher class
	Reenqueued uint64 `json:"reenqueued"` // taken back from a CPU that was lost
	Throttled  uint64 `json:"throttled"`  // workloads that ran out of quota
	Capped     uint64 `json:"capped"`     // not let run by the cap of all best-effort work
	Headroom   uint64 `json:"headroom"`   // not placed on a core that is left to others
	Urgent     uint64 `json:"urgent"`     // threads that went to the urgent queue
	Pinned     uint64 `json:"pinned"`     // threads that went to the queue of one CPU
	Drift      uint64 `json:"drift"`      // CPUs whose recorded class was wrong and was set right
	LongWaits  uint64 `json:"long_waits"` // long waits reported
	Lost       uint64 `json:"lost"`       // events that found no room
	// Kicks count CPUs that had to choose a thread again: to expel BE, to wake
	// up for BE, and of the latter those that a timer woke.
	KicksExpel uint64 `json:"kicks_expel"`
	KicksWake  uint64 `json:"kicks_wake"`
	KicksTimer uint64 `json:"kicks_timer"`
}

// A SchedulerQueue is the number of threads that wait on the CPUs of one
// last-level cache.
type SchedulerQueue struct {
	Waiting int `json:"waiting"` // for any CPU
	Urgent  int `json:"urgent"`  // before them
	Pinned  int `json:"pinned"`  // for one CPU
}

// A SchedulerClass is how the scheduler looks at a thread.
type SchedulerClass string

// The classes of the scheduler.
const (
	SchedulerNormal SchedulerClass = "NORMAL" // neither expels nor is expelled
	SchedulerBE     SchedulerClass = "BE"     // its own threads
	SchedulerLS     SchedulerClass = "LS"     // latency-sensitive, without expelling
	SchedulerLSX    SchedulerClass = "LSX"    // expels
)

// SchedulerClasses lists the classes from the most to the least protected.
var SchedulerClasses = []SchedulerClass{SchedulerLSX, SchedulerLS, SchedulerNormal, SchedulerBE}

// A SchedulerExit is one end of the scheduler.
type SchedulerExit struct {
	At   time.Time `json:"at"`
	Kind ExitKind  `json:"kind"`
	// Code is the kernel's, Reason and Message its words. Both may be empty.
	Code    int64  `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// An ExitKind is why a scheduler ended.
type ExitKind string

// The kinds of exits.
const (
	ExitUnload ExitKind = "unload" // Tenon unloaded it
	ExitSilent ExitKind = "silent" // it ended itself: the agent was silent
	ExitKernel ExitKind = "kernel" // the kernel ended it, as for CPU hotplug
	ExitSysrq  ExitKind = "sysrq"  // somebody pressed sysrq-S
	ExitStall  ExitKind = "stall"  // a thread waited longer than the kernel allows
	ExitError  ExitKind = "error"  // the kernel, or the program itself, found a fault
)

// ExitKinds lists the kinds.
var ExitKinds = []ExitKind{ExitUnload, ExitSilent, ExitKernel, ExitSysrq, ExitStall, ExitError}
