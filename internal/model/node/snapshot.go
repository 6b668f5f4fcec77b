// Package node is the vocabulary of Tenon: the topology of a machine, its
// workloads and their use, and the present value of every kernel knob that
// Tenon may own. A Snapshot holds all that a decision may depend on.
package node

import (
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// A Snapshot is the state of the node at one instant. A policy gets no other
// input, so only data in a Snapshot can influence a decision.
type Snapshot struct {
	// At is the time of the snapshot. Differences between two snapshots of one
	// host are exact, even if the wall clock is set.
	At           time.Time    `json:"at"`
	Topology     Topology     `json:"topology"`
	Capabilities Capabilities `json:"can,omitempty"`
	Usage        Usage        `json:"usage"`
	// MemoryTotal is the memory of the node (MemTotal of /proc/meminfo).
	MemoryTotal Maybe[unit.Bytes] `json:"memory_total,omitzero"`
	// Busy is the time since boot for which each online CPU was not idle.
	Busy      map[unit.CPU]time.Duration `json:"busy,omitempty"`
	Workloads []Workload                 `json:"workloads,omitempty"`
	// Arriving are the workloads that are bound to the node without a cgroup yet.
	Arriving []Workload `json:"arriving,omitempty"`
	// SLOViolated: this snapshot was taken early because an LS workload waited.
	// The time since the previous snapshot is then too short for useful rates.
	SLOViolated bool `json:"hurt,omitempty"`
	// Devices are the block devices; nil: the snapshot has no I/O knobs.
	Devices []BlockDevice `json:"devices,omitempty"`
	// Waits holds the waits of LS workloads by runner; nil: not counted.
	Waits []Wait `json:"waits,omitempty"`
	// Resctrl says how L3 caches and memory bandwidth can be divided. Cache is
	// the use of each class that has a control group.
	Resctrl Resctrl            `json:"resctrl,omitzero"`
	Cache   map[Class]CacheUse `json:"cache,omitempty"`
	// Isolation is the state of the isolation mechanisms.
	Isolation Isolation `json:"isolation,omitzero"`
	// Conflicts are the knobs that another component also wrote lately.
	Conflicts []WriteConflict `json:"conflicts,omitempty"`
	Knobs     Knobs           `json:"knobs"`
}

// Class is a QoS class, with Koordinator's names and meaning.
type Class string

// The QoS classes. LS is latency-sensitive, LSR is LS with bound CPUs, LSE is
// LS with exclusive CPUs, BE is best-effort, and SYSTEM is the node's own
// daemons.
const (
	LSE    Class = "LSE"
	LSR    Class = "LSR"
	LS     Class = "LS"
	BE     Class = "BE"
	System Class = "SYSTEM"
)

// Classes lists the QoS classes from the most to the least protected.
var Classes = []Class{LSE, LSR, LS, System, BE}

// Sensitive reports whether c must be protected from BE.
func (c Class) Sensitive() bool { return c == LSE || c == LSR || c == LS }

// WorkloadID names a workload on its node.
type WorkloadID string

// A Workload is a group of processes that Tenon manages as one.
type Workload struct {
	ID    WorkloadID `json:"id"`
	Class Class      `json:"class"`
	// Rule is the configuration rule that gave the workload its class; empty
	// for workloads that tenon run or the lab started.
	Rule string `json:"rule,omitempty"`
	// Container is the container's name if the workload is a single container.
	Container string     `json:"container,omitempty"`
	Cgroup    CgroupPath `json:"cgroup"`
	// ContentionRoot is the highest cgroup that holds only workloads of this
	// class. Its siblings hold other classes: there a CPU weight decides
	// between LS and BE, because weights apply between siblings only.
	ContentionRoot CgroupPath `json:"meet,omitempty"`
	// IdleCgroup is the cgroup below ContentionRoot whose weight Tenon sets if
	// another program owns that of ContentionRoot: the kubelet rewrites the
	// weights of its QoS cgroups every minute, and needs them to start.
	IdleCgroup CgroupPath `json:"yields,omitempty"`
	Usage      Usage      `json:"usage"`
	// CPULimit and MemoryLimit are the workload's limits; absent: no limit.
	CPULimit    Maybe[unit.MilliCPU] `json:"cpu_limit,omitzero"`
	MemoryLimit Maybe[unit.Bytes]    `json:"memory_limit,omitzero"`
	// CPUManagedExternally and MemoryManagedExternally: another component
	// enforces these limits, as the kubelet does for pods. Tenon does not
	// set them; it adds only CPU burst and memory protection.
	CPUManagedExternally    bool `json:"cpu_kept,omitempty"`
	MemoryManagedExternally bool `json:"memory_kept,omitempty"`
	// CPURequest and MemoryRequest are the workload's requests; absent: none.
	CPURequest    Maybe[unit.MilliCPU] `json:"cpu_request,omitzero"`
	MemoryRequest Maybe[unit.Bytes]    `json:"memory_request,omitzero"`
	// Weight is its share of CPU against its siblings of the same class;
	// absent: Tenon does not set it.
	Weight Maybe[unit.Weight] `json:"weight,omitzero"`
	// EvictionPriority, Priority and SubPriority, in this order, decide which
	// workload of a class gives way first: the one with the lower value.
	Priority         int `json:"priority,omitempty"`
	EvictionPriority int `json:"eviction_priority,omitempty"`
	SubPriority      int `json:"sub_priority,omitempty"`
	// DefaultPriority stands in for a Priority of 0 under a bound; 0: none does.
	DefaultPriority int `json:"default_priority,omitempty"`
	// Unlabelled: BE only because it requests nothing. Daemon: a DaemonSet runs
	// it, and starts it again at once. Mid: BE work of the priority class
	// koord-mid, which reduces the batch resources. Starting: its use will grow
	// to its request.
	Unlabelled bool `json:"unlabelled,omitempty"`
	Daemon     bool `json:"daemon,omitempty"`
	Mid        bool `json:"mid,omitempty"`
	Starting   bool `json:"starting,omitempty"`
	// Objective is the latency objective of an LS workload.
	Objective Objective `json:"objective,omitzero"`
	// Grace is its time to end after SIGTERM; absent: as configured.
	Grace Maybe[time.Duration] `json:"grace,omitzero"`
	// Ending is AskedToEnd or Ended while its processes were asked to end or
	// killed but may still run, because they need the CPU to end. Empty: no end
	// is in progress, or it took so long that Tenon treats it as cancelled.
	Ending Run `json:"ending,omitempty"`
	// EvictionExempt is the reason against its eviction now; empty: none.
	EvictionExempt string `json:"spared,omitempty"`
	// Containers are the cgroups inside Cgroup that have limits of their own.
	Containers []Container `json:"parts,omitempty"`
	// Overrides are the values that replace the strategy of its class.
	Overrides Overrides `json:"asks,omitzero"`
}

// An Objective is the latency objective of an LS workload. The zero Objective
// has none.
type Objective struct {
	// RunQueueDelay is the time within which 99 of 100 waits of its threads for
	// a CPU should end.
	RunQueueDelay Maybe[time.Duration] `json:"run_queue_delay,omitzero"`
}

// Maybe is a value that may be absent. The zero Maybe is absent.
type Maybe[T any] struct {
	value T
	known bool
}

// Some returns the Maybe with the value v.
func Some[T any](v T) Maybe[T] { return Maybe[T]{v, true} }

// Value returns the value and whether it is present.
func (m Maybe[T]) Value() (T, bool) { return m.value, m.known }

// Or returns the value, or the fallback if the value is absent.
func (m Maybe[T]) Or(fallback T) T {
	if m.known {
		return m.value
	}
	return fallback
}

// Known reports whether the value is present.
func (m Maybe[T]) Known() bool { return m.known }

// IsZero reports whether the value is absent, for the JSON option omitzero.
func (m Maybe[T]) IsZero() bool { return !m.known }
