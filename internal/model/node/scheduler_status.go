package node

import "time"

// An IsolationStatus is the state of the isolation mechanisms, with counters since the
// agent started. It is for people and metrics: no decision depends on it.
type IsolationStatus struct {
	// Loads is the number of times that the BE scheduler was loaded. Exits is
	// the number of times that it exited, by kind.
	Loads uint64              `json:"loads,omitempty"`
	Exits map[ExitKind]uint64 `json:"exits,omitempty"`
	// LastExit is the last exit of the BE scheduler. It is zero if there was none.
	LastExit SchedulerExit `json:"last_exit,omitzero"`
	// Strays is the number of BE threads that Tenon found without the policy or
	// cookie of the isolation mechanism. Converted is the number of these
	// threads that then got it from Tenon.
	Strays    uint64 `json:"strays,omitempty"`
	Converted uint64 `json:"converted,omitempty"`
	// Realtime is the present number of BE threads with a real-time policy.
	// Tenon does not change such threads.
	Realtime int `json:"realtime,omitempty"`
	// OwnSlices is the number of BE threads that cannot get the long slice of
	// Tenon, because they have SCHED_IDLE or set a slice themselves. While such a
	// thread is on a CPU, the long slices of other threads there have no effect.
	OwnSlices int `json:"own_slices,omitempty"`
	// Demotions is the number of times that Tenon moved a thread from the BE scheduler
	// to the fair class for a while, because the thread had waited too long. Demoted is
	// the number of threads that Tenon has moved there and not yet moved back.
	Demotions uint64 `json:"demotions,omitempty"`
	Demoted   int    `json:"demoted,omitempty"`
	// Refused names the orders that the loaded scheduler refused, for example
	// because its table of cgroups was full.
	Refused string `json:"refused,omitempty"`
	// Scheduler is the status of the BE scheduler since its last load. It
	// remains after an exit. It is nil if the scheduler was never loaded.
	Scheduler *SchedulerStatus `json:"scheduler,omitempty"`
}

// A SchedulerStatus is the status of the BE scheduler, with counters since it was
// loaded. Tenon reads one counter after another while the scheduler runs. So the
// sum of two counters may differ a little from a third one that should equal it.
type SchedulerStatus struct {
	At time.Time `json:"at"` // time of the reading
	// State is the state of sched_ext in the kernel, such as enabled or disabled.
	State string `json:"state"`
	// Running says that sched_ext is enabled and runs Tenon's scheduler.
	Running bool `json:"running"`
	// Variant names the loaded build of the scheduler: the first kernel version
	// with the sched_ext interface that this build uses.
	Variant string    `json:"variant,omitempty"`
	Since   time.Time `json:"since"` // time of the load

	// Run is the run time of the threads of each class. Strayed is the run time of BE
	// threads that ran outside the scheduler. Idle is the idle time of the CPUs.
	Run     map[SchedulerClass]time.Duration `json:"run_ns,omitempty"`
	Strayed time.Duration                    `json:"strayed_ns"`
	Idle    time.Duration                    `json:"idle_ns"`
	// Wait is the time that threads of the BE scheduler waited for a CPU.
	Wait time.Duration `json:"wait_ns"`
	// A thread of class LSX keeps BE off the sibling of its CPU. ExpelIdle is the
	// time that CPUs stayed idle, although BE waited, because such a thread ran on
	// the sibling. HoldIdle is the time that CPUs stayed idle, although BE waited,
	// because such a thread had just run on the sibling (see Scheduler.Hold).
	ExpelIdle time.Duration `json:"expel_idle_ns"`
	HoldIdle  time.Duration `json:"hold_idle_ns"`
	// ExpelDelay is a histogram. It counts how long BE still ran on the sibling
	// after a thread of class LSX had started. DelayBound gives the bucket bounds.
	ExpelDelay []uint64 `json:"expel_delay_counts,omitempty"`
	// OldestWait is the longest wait of a thread that waits now.
	OldestWait time.Duration `json:"oldest_wait_ns"`

	SchedulerCounts
	// Queues holds, for each last-level cache, how many threads wait for a CPU now.
	// Parked is the number of other threads, which wait because their quota is used up.
	Queues []SchedulerQueue `json:"queues,omitempty"`
	Parked int              `json:"parked"`
}

// SchedulerCounts are counters of the scheduler's events. A field with the tag
// help has the metric tenon_scheduler_NAME_total, with that text. NAME is the tag
// metric, or the name in JSON.
type SchedulerCounts struct {
	Switches   uint64 `json:"switches" help:"Context switches that the scheduler has seen."`
	Starts     uint64 `json:"starts" help:"Best-effort threads that were put on a CPU."`
	Expels     uint64 `json:"expels" help:"Best-effort threads that were sent away because latency-sensitive work started on the sibling."`
	Refusals   uint64 `json:"refusals" help:"Best-effort threads that were refused a CPU because latency-sensitive work ran on the sibling."`
	Violations uint64 `json:"violations" help:"Best-effort threads that started beside latency-sensitive work against the rule, and were stopped."`
	Races      uint64 `json:"races" help:"Violations in which latency-sensitive work started at the same moment."`
	Resumed    uint64 `json:"resumed" help:"Violations in which a preempted thread resumed without a decision of the scheduler."`
	Relief     uint64 `json:"relief" help:"Best-effort threads that were allowed beside latency-sensitive work because they had waited too long."`
	Preempted  uint64 `json:"preempted" metric:"preemptions" help:"Best-effort threads that lost their CPU to other work."`
	Reenqueued uint64 `json:"reenqueued" help:"Best-effort threads that were taken back from a CPU after other work took the CPU."`
	Throttled  uint64 `json:"throttled" metric:"throttles" help:"Best-effort workloads that used up their CPU quota."`
	Capped     uint64 `json:"capped" help:"Best-effort threads that were refused a CPU by the cap of all best-effort work."`
	Headroom   uint64 `json:"headroom" help:"Best-effort threads that were not put on an idle core that is left to latency-sensitive work."`
	Urgent     uint64 `json:"urgent" help:"Best-effort threads that were queued before the others: they may hold what others need."`
	Pinned     uint64 `json:"pinned" help:"Best-effort threads that were queued for one CPU."`
	Drift      uint64 `json:"drift" help:"Corrections of a CPU's recorded class."`
	LongWaits  uint64 `json:"long_waits" help:"Reports of threads with a long wait."`
	Lost       uint64 `json:"lost" help:"Reports that were lost because the ring was full."`
	// A kick makes a CPU choose its thread again. KicksExpel counts kicks that
	// take BE off a CPU. KicksWake counts kicks that make a CPU run BE.
	// KicksTimer counts those of KicksWake that a timer sent.
	KicksExpel uint64 `json:"kicks_expel"`
	KicksWake  uint64 `json:"kicks_wake"`
	KicksTimer uint64 `json:"kicks_timer"`
}

// A SchedulerQueue counts the waiting threads of one last-level cache.
type SchedulerQueue struct {
	Waiting int `json:"waiting"` // for any CPU
	Urgent  int `json:"urgent"`  // for any CPU, in the urgent queue
	Pinned  int `json:"pinned"`  // for one certain CPU
}

// A SchedulerClass is the class of a thread in the BE scheduler.
type SchedulerClass string

// The values of SchedulerClass.
const (
	SchedulerNormal SchedulerClass = "NORMAL" // all others: they do not expel BE and are not expelled
	SchedulerBE     SchedulerClass = "BE"     // the scheduler's own threads
	SchedulerLS     SchedulerClass = "LS"     // latency-sensitive, does not expel BE
	SchedulerLSX    SchedulerClass = "LSX"    // latency-sensitive, expels BE from the siblings of its CPUs
)

// SchedulerClasses lists the classes from the most to the least protected.
var SchedulerClasses = []SchedulerClass{SchedulerLSX, SchedulerLS, SchedulerNormal, SchedulerBE}

// A SchedulerExit is one exit of the scheduler.
type SchedulerExit struct {
	At   time.Time `json:"at"`
	Kind ExitKind  `json:"kind"`
	// Code, Reason and Message come from the kernel. Each may be empty.
	Code    int64  `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// An ExitKind is the cause of a scheduler's exit.
type ExitKind string

// The values of ExitKind.
const (
	ExitUnload ExitKind = "unload" // Tenon unloaded the scheduler
	ExitSilent ExitKind = "silent" // the scheduler exited because the agent sent no heartbeat
	ExitKernel ExitKind = "kernel" // the kernel ended the scheduler, for example for CPU hotplug
	ExitSysrq  ExitKind = "sysrq"  // a user pressed sysrq-S
	ExitStall  ExitKind = "stall"  // a thread waited longer than the kernel allows
	ExitError  ExitKind = "error"  // the kernel or the scheduler itself found an error
)

// ExitKinds lists the kinds.
var ExitKinds = []ExitKind{ExitUnload, ExitSilent, ExitKernel, ExitSysrq, ExitStall, ExitError}
