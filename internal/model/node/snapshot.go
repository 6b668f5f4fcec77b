// Package node is the vocabulary of Tenon: what a machine is, who runs on it,
// how much it uses, and the present value of every kernel knob that Tenon
// may own. A Snapshot holds all that a decision may depend on.
package node

import (
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// A Snapshot is the node at one instant. Policies see nothing else, so what
// is not in a Snapshot cannot influence a decision.
type Snapshot struct {
	// At is the time of the snapshot. Differences are exact: a clock that is
	// set between two snapshots of one host does not show in them.
	At           time.Time    `json:"at"`
	Topology     Topology     `json:"topology"`
	Capabilities Capabilities `json:"can,omitempty"`
	Usage        Usage        `json:"usage"`
	// MemoryTotal is the memory of the node (MemTotal of /proc/meminfo).
	MemoryTotal Maybe[unit.Bytes] `json:"memory_total,omitzero"`
	// Busy is the time that each online CPU was not idle since boot.
	Busy      map[unit.CPU]time.Duration `json:"busy,omitempty"`
	Workloads []Workload                 `json:"workloads,omitempty"`
	// SLOViolated: it was taken because an LS workload was seen waiting. Then rates
	// since the previous snapshot say little about this moment.
	SLOViolated bool `json:"hurt,omitempty"`
	// Devices are the block devices, where a knob of block I/O is in sight.
	Devices []BlockDevice `json:"devices,omitempty"`
	// Waits says which runners LS workloads waited for, if that is counted.
	Waits []Wait `json:"waits,omitempty"`
	// Resctrl is the way in which L3 caches and memory bandwidth can be
	// divided, and Cache the use of each class with a control group of its own.
	Resctrl Resctrl            `json:"resctrl,omitzero"`
	Cache   map[Class]CacheUse `json:"cache,omitempty"`
	// Isolation is the state of the isolation mechanisms.
	Isolation Isolation `json:"isolation,omitzero"`
	// Conflicts are the knobs that another component has written lately, too.
	Conflicts []WriteConflict `json:"conflicts,omitempty"`
	Knobs     Knobs           `json:"knobs"`
}

// Class is a QoS class, with Koordinator's names and meaning.
type Class string

// The QoS classes. LS is latency-sensitive; LSR and LSE are LS with bound
// and with exclusive CPUs; BE is best-effort; SYSTEM is the node's own.
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

// A Workload is a group of processes that is managed as one.
type Workload struct {
	ID    WorkloadID `json:"id"`
	Class Class      `json:"class"`
	// Rule is the rule of the configuration that gave it its class; empty for
	// what tenon run or the lab started.
	Rule string `json:"rule,omitempty"`
	// Container is the name of the container that it is, if it is one.
	Container string     `json:"container,omitempty"`
	Cgroup    CgroupPath `json:"cgroup"`
	// ContentionRoot is the highest cgroup that holds only workloads of this one's
	// class and that competes with the others: the level at which a CPU
	// weight decides between LS and BE. Weights act between siblings only.
	ContentionRoot CgroupPath `json:"meet,omitempty"`
	// IdleCgroup is the cgroup whose weight Tenon sets when it cannot set that of
	// Meet because another program owns it. The kubelet, for example, rewrites
	// the weights of its QoS cgroups every minute, and does not start without
	// these cgroups. Yields lies below Meet.
	IdleCgroup CgroupPath `json:"yields,omitempty"`
	Usage      Usage      `json:"usage"`
	// CPULimit and MemoryLimit are the limits that it specifies; absent: none.
	CPULimit    Maybe[unit.MilliCPU] `json:"cpu_limit,omitzero"`
	MemoryLimit Maybe[unit.Bytes]    `json:"memory_limit,omitzero"`
	// CPUManagedExternally and MemoryManagedExternally: another component
	// enforces these limits, as the kubelet does those of a pod. Tenon only
	// adds to them.
	CPUManagedExternally    bool `json:"cpu_kept,omitempty"`
	MemoryManagedExternally bool `json:"memory_kept,omitempty"`
	// CPURequest and MemoryRequest are the amounts that it requests.
	CPURequest    Maybe[unit.MilliCPU] `json:"cpu_request,omitzero"`
	MemoryRequest Maybe[unit.Bytes]    `json:"memory_request,omitzero"`
	// Weight is its share of CPU against its siblings of the same class.
	Weight Maybe[unit.Weight] `json:"weight,omitzero"`
	// Priority orders work of one class: what is lower gives way first. Before
	// that, what has the lower EvictionPriority; after it, the lower SubPriority.
	Priority         int `json:"priority,omitempty"`
	EvictionPriority int `json:"eviction_priority,omitempty"`
	SubPriority      int `json:"sub_priority,omitempty"`
	// Objective is the service that it should get.
	Objective Objective `json:"objective,omitzero"`
	// Grace is its time to end after SIGTERM; absent: as configured.
	Grace Maybe[time.Duration] `json:"grace,omitzero"`
	// Ending is AskedToEnd or Ended while its processes were asked to end, or
	// killed, and may still run, which they must in order to end. Empty: no end
	// is under way, or it has taken so long that it counts as called off.
	Ending Run `json:"ending,omitempty"`
	// EvictionExempt says why it may not be evicted now; empty: it may.
	EvictionExempt string `json:"spared,omitempty"`
	// Containers are the cgroups inside Cgroup that have limits of their own.
	Containers []Container `json:"parts,omitempty"`
	// Overrides are its overrides of the strategy of its class.
	Overrides Overrides `json:"asks,omitzero"`
}

// An Objective is the service that a latency-sensitive workload should get.
// The zero Objective names none.
type Objective struct {
	// RunQueueDelay is the time within which 99 of 100 waits of its threads
	// for a CPU should end.
	RunQueueDelay Maybe[time.Duration] `json:"run_queue_delay,omitzero"`
}

// Maybe is a value that may be missing. The zero Maybe is missing.
type Maybe[T any] struct {
	value T
	known bool
}

// Some is a present value.
func Some[T any](v T) Maybe[T] { return Maybe[T]{v, true} }

// Value returns the value and whether it is present.
func (m Maybe[T]) Value() (T, bool) { return m.value, m.known }

// Or returns the value, or the fallback where it is missing.
func (m Maybe[T]) Or(fallback T) T {
	if m.known {
		return m.value
	}
	return fallback
}

// Known reports whether the value is present.
func (m Maybe[T]) Known() bool { return m.known }

// IsZero reports that the value is missing, for the JSON option omitzero.
func (m Maybe[T]) IsZero() bool { return !m.known }
