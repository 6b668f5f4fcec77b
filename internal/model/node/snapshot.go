// Package node defines the data that all parts of Tenon use: the topology of a machine,
// its workloads and the CPU and memory that they use, and the present value of every
// kernel knob that Tenon may own. A Snapshot holds all data for a decision.
package node

import (
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// A Snapshot is the state of the node at one instant. A policy gets no other
// input, so only data in a Snapshot can influence a decision.
type Snapshot struct {
	// At is the time of the snapshot. The difference between the times of two
	// snapshots of one host is exact, even if the wall clock was set in
	// between.
	At           time.Time    `json:"at"`
	Topology     Topology     `json:"topology"`
	Capabilities Capabilities `json:"can,omitempty"`
	Usage        Usage        `json:"usage"`
	// MemoryTotal is the memory of the node without huge pages (/proc/meminfo).
	MemoryTotal Maybe[unit.Bytes] `json:"memory_total,omitzero"`
	// Busy is the time since boot in which each online CPU was not idle.
	Busy      map[unit.CPU]time.Duration `json:"busy,omitempty"`
	Workloads []Workload                 `json:"workloads,omitempty"`
	// Arriving are workloads that the node will run. They have no cgroup yet.
	Arriving []Workload `json:"arriving,omitempty"`
	// SLOViolated says that this snapshot was taken early because an LS workload
	// waited. The time since the previous snapshot is then too short to compute rates.
	SLOViolated bool `json:"slo_violated,omitempty"`
	// Devices are the block devices. It is nil if the snapshot has no I/O knobs.
	Devices []BlockDevice `json:"devices,omitempty"`
	// Waits says how long LS workloads waited, and for which work. It is nil if not counted.
	Waits []Wait `json:"waits,omitempty"`
	// Resctrl says how L3 caches and memory bandwidth can be divided. Cache holds
	// the cache and the bandwidth that each class with a control group uses.
	Resctrl Resctrl            `json:"resctrl,omitzero"`
	Cache   map[Class]CacheUse `json:"cache,omitempty"`
	// Isolation is the state of the isolation mechanisms.
	Isolation Isolation `json:"isolation,omitzero"`
	// Conflicts are the knobs that another component also wrote in the last minutes.
	Conflicts []WriteConflict `json:"conflicts,omitempty"`
	Knobs     Knobs           `json:"knobs"`
}

// Class is a QoS class, with Koordinator's names and meaning.
type Class string

// The QoS classes. LS is latency-sensitive, LSR is LS with bound CPUs, and LSE is LS
// with exclusive CPUs. BE is best-effort, and SYSTEM holds the node's own daemons.
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
	// Rule is the configuration rule that gave the workload its class. It is
	// empty if tenon run or the lab started the workload.
	Rule string `json:"rule,omitempty"`
	// Pod says that the workload is a pod of Kubernetes (see PodName).
	Pod bool `json:"pod,omitempty"`
	// Owner is the controller of a pod, as Kind/namespace/name. All Jobs of a CronJob
	// have one owner. It is empty if the workload is no pod, or has no controller.
	Owner string `json:"owner,omitempty"`
	// Container is the container's name if the workload is a single container.
	Container string     `json:"container,omitempty"`
	Cgroup    CgroupPath `json:"cgroup"`
	// ContentionRoot is the highest cgroup that contains the workload and, besides it,
	// only work of its class. Its siblings hold other classes. The kernel compares the
	// weights of siblings, so this cgroup's weight decides between LS and BE.
	ContentionRoot CgroupPath `json:"contention_root,omitempty"`
	// IdleCgroup is a cgroup below ContentionRoot. Tenon sets its weight if another program
	// owns the weight of ContentionRoot. For example, the kubelet writes the weights of its
	// QoS cgroups every minute, and does not start if it cannot write them.
	IdleCgroup CgroupPath `json:"idle_cgroup,omitempty"`
	Usage      Usage      `json:"usage"`
	// CPULimit and MemoryLimit are the workload's limits. If one is absent, there is no limit.
	CPULimit    Maybe[unit.MilliCPU] `json:"cpu_limit,omitzero"`
	MemoryLimit Maybe[unit.Bytes]    `json:"memory_limit,omitzero"`
	// CPUManagedExternally and MemoryManagedExternally say that another
	// component enforces the limit, such as the kubelet for pods. Tenon leaves
	// such a limit alone, and sets only CPU burst and memory protection.
	CPUManagedExternally    bool `json:"cpu_managed_externally,omitempty"`
	MemoryManagedExternally bool `json:"memory_managed_externally,omitempty"`
	// StartLimit is the largest CPU limit of the containers of a BE pod that wait to start
	// and whose limit the container runtime writes. On cgroup v1 the kernel refuses this
	// write, and the container cannot start, while the pod has a smaller quota.
	StartLimit Maybe[unit.MilliCPU] `json:"start_limit,omitzero"`
	// CPURequest and MemoryRequest are the workload's requests, or absent if it
	// requests nothing.
	CPURequest    Maybe[unit.MilliCPU] `json:"cpu_request,omitzero"`
	MemoryRequest Maybe[unit.Bytes]    `json:"memory_request,omitzero"`
	// Weight is the workload's CPU weight against siblings of the same class.
	// If it is absent, Tenon does not change the weight.
	Weight Maybe[unit.Weight] `json:"weight,omitzero"`
	// These three, compared in this order, say which workload of a class gives way
	// first: the one with the lowest EvictionPriority, Priority and SubPriority.
	Priority         int `json:"priority,omitempty"`
	EvictionPriority int `json:"eviction_priority,omitempty"`
	SubPriority      int `json:"sub_priority,omitempty"`
	// DefaultPriority replaces a Priority of 0 in the comparison with the
	// highest priority that Tenon may evict. Both may be 0.
	DefaultPriority int `json:"default_priority,omitempty"`
	// Unlabelled: it is BE only because it requests nothing. Daemon: a DaemonSet restarts
	// it at once. Mid: its usage reduces the batch resources (a BE pod of koord-mid, or a
	// BE host program of koord-mid or koord-prod). Starting: its usage will still grow.
	// Passing: its arrival is no new service, as of a pod of a Job or a part of Tenon.
	Unlabelled bool `json:"unlabelled,omitempty"`
	Daemon     bool `json:"daemon,omitempty"`
	Mid        bool `json:"mid,omitempty"`
	Starting   bool `json:"starting,omitempty"`
	Passing    bool `json:"passing,omitempty"`
	// Objective is the latency objective of an LS workload.
	Objective Objective `json:"objective,omitzero"`
	// Grace is the time that the workload may take to end after SIGTERM. If it
	// is absent, the time in the configuration applies.
	Grace Maybe[time.Duration] `json:"grace,omitzero"`
	// Ending is AskedToEnd after Tenon sent SIGTERM, and Ended after SIGKILL. Even then
	// processes may still run, because they need CPU to end. Ending is empty if Tenon sent
	// no signal, or sent it so long ago that the request counts as cancelled.
	Ending Run `json:"ending,omitempty"`
	// EvictionExempt is the reason why Tenon must not evict the workload now.
	// It is empty if Tenon may evict it.
	EvictionExempt string `json:"eviction_exempt,omitempty"`
	// Containers are the containers of the workload that have limits of their own.
	Containers []Container `json:"containers,omitempty"`
	// Overrides are the workload's own values, which replace those of its class.
	Overrides Overrides `json:"overrides,omitzero"`
}

// PodName returns the namespace and the name of a pod from the ID of its
// workload, which is namespace/name, or namespace/name/UID.
func (id WorkloadID) PodName() (namespace, name string) {
	namespace, rest, _ := strings.Cut(string(id), "/")
	name, _, _ = strings.Cut(rest, "/")
	return namespace, name
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

// IsZero reports whether the value is absent. The JSON option omitzero calls it.
func (m Maybe[T]) IsZero() bool { return !m.known }

// A Container is a container of a workload, with limits of its own. The limits
// of the workload also apply to it. On cgroup v1 the kernel refuses to give a
// child cgroup a larger CPU quota than its parent has.
type Container struct {
	Name          string               `json:"name"`
	Cgroup        CgroupPath           `json:"cgroup"`
	CPULimit      Maybe[unit.MilliCPU] `json:"cpu_limit,omitzero"`
	MemoryLimit   Maybe[unit.Bytes]    `json:"memory_limit,omitzero"`
	CPURequest    Maybe[unit.MilliCPU] `json:"cpu_request,omitzero"`
	MemoryRequest Maybe[unit.Bytes]    `json:"memory_request,omitzero"`
	Weight        Maybe[unit.Weight]   `json:"weight,omitzero"`
}
