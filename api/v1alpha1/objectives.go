package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objectives are the services of a node that have an objective, and what the agent
// does about those that miss theirs.
type Objectives struct {
	// BackOff is the part of its CPU, in thousandths, that BE work loses because a
	// service misses its objective, or did so in the last minute. 0: none.
	BackOff int32 `json:"backOff,omitempty"`
	// By lists the kernel files that bound BE work now, such as cpu.max. Empty:
	// none. Why is the reason if there is no bound although BackOff asks for one,
	// or if a kind of bound is not possible on this node.
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	// BECPU is the CPU that the bound leaves to all BE work. Absent: there is no
	// bound in CPU time.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	BECPU *resource.Quantity `json:"beCPU,omitempty"`
	// Bounded has the BE workloads that are bounded alone, because a service waited
	// mostly for them, by name. At most 50 are listed.
	// +listType=atomic
	Bounded []BoundedWork `json:"bounded,omitempty"`
	// Services has at most 50 services. Those that miss their objective come first,
	// the longest miss before the others. More is the number of services that are
	// missing in the list.
	// +listType=atomic
	Services []ServiceObjective `json:"services,omitempty"`
	More     int32              `json:"more,omitempty"`
}

// BoundedWork is a BE workload that alone has less CPU, because a service waited
// for it.
type BoundedWork struct {
	// Namespace and Pod name the pod; see ObjectiveRunner.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod"`
	// ServiceNamespace and Service name the service in the same way.
	ServiceNamespace string `json:"serviceNamespace,omitempty"`
	Service          string `json:"service"`
	// CPU is what the workload may use.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	CPU resource.Quantity `json:"cpu"`
	// Share is the part of the waits for BE work that it had caused when its bound
	// was last reduced, in percent. Since is the time of its first bound.
	Share int32            `json:"share"`
	Since metav1.MicroTime `json:"since"`
}

// The states of a service with an objective.
const (
	ObjectiveKept      = "Kept"
	ObjectiveMissed    = "Missed"
	ObjectiveUndecided = "Undecided"
)

// ServiceObjective says whether one service keeps its objective.
type ServiceObjective struct {
	// Namespace and Pod name the pod. For a service of a rule of the node, Namespace
	// is empty and Pod is the name of its workload.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod"`
	// RunQueueDelay is an objective: 99 of 100 waits of its threads for a CPU
	// should end within this time. Absent: it has no such objective.
	RunQueueDelay *metav1.Duration `json:"runQueueDelay,omitempty"`
	// Requests is the objective for its requests, with the verdict about it. Absent:
	// it has no such objective.
	Requests *ServiceRequests `json:"requests,omitempty"`
	// State is Kept, Missed or Undecided. If the service has both objectives, it is
	// Missed if one is missed, and an objective without a verdict does not count
	// beside the other. Since is the time at which State began, on the clock of the
	// node.
	State string            `json:"state"`
	Since *metav1.MicroTime `json:"since,omitempty"`
	// Lasted says for how long each state was in force. Absent: the agent is of an
	// earlier version.
	Lasted *StateTimes `json:"lasted,omitempty"`
	// Counted has the waits of its threads since its counters began. Absent: they are not
	// counted. Changes of it alone cause no report.
	Counted *CountedWaits `json:"counted,omitempty"`
	// Measured is a time that 99 of 100 waits in the last window did not exceed.
	// Estimated: only the mean wait was measured, and Measured is five times as long.
	Measured  *metav1.Duration `json:"measured,omitempty"`
	Estimated bool             `json:"estimated,omitempty"`
	// Quiet is such a time in the best window of about an hour in which BE work caused
	// hardly any waits. Absent: there was none. A shorter objective cannot be kept on
	// this node, whatever BE work does.
	Quiet *metav1.Duration `json:"quiet,omitempty"`
	// Cause says why the objective is missed: best-effort, own-limit, own-threads,
	// other-service, system, host, unclear or unknown-runner; or, of requests that hardly
	// waited for a CPU, best-effort-memory, memory, contention, storage, downstream or
	// not-waiting. BE work loses CPU only for best-effort and unknown-runner. Or it says why
	// State is Undecided: unmeasured, below-least or too-few, or as in Requests. Why has the
	// details of unmeasured.
	Cause string `json:"cause,omitempty"`
	Why   string `json:"why,omitempty"`
	// Culprit is the work that is most to blame for a miss, if the cause is work of
	// another workload, such as the one that took most memory. CulpritNamespace is its
	// namespace; see ObjectiveRunner.
	CulpritNamespace string `json:"culpritNamespace,omitempty"`
	Culprit          string `json:"culprit,omitempty"`
	// Shares are the parts of the waiting time that each kind of work caused in the
	// last window with a miss, the largest first.
	// +listType=atomic
	Shares []ObjectiveShare `json:"shares,omitempty"`
	// Waited is the time for which the threads of the service waited in the last
	// window with a miss. Runners are at most five kinds of work that had the CPUs
	// meanwhile, the longest first.
	Waited *metav1.Duration `json:"waited,omitempty"`
	// +listType=atomic
	Runners []ObjectiveRunner `json:"runners,omitempty"`
	// Periods is the number of periods of the service's own CPU limit in that
	// window. In ThrottledPeriods of them the limit stopped the service.
	Periods          int64 `json:"periods,omitempty"`
	ThrottledPeriods int64 `json:"throttledPeriods,omitempty"`
}

// CountedWaits says how often the threads of a service waited for a CPU, and for how long
// in total.
type CountedWaits struct {
	Waits  int64           `json:"waits"`
	Waited metav1.Duration `json:"waited"`
	// Throttled is the time for which its own CPU limit stopped the service.
	Throttled *metav1.Duration `json:"throttled,omitempty"`
}

// StateTimes says for how long each state of a service with an objective was in force.
type StateTimes struct {
	// Since is the time at which the agent first saw this objective, on the clock of the
	// node: the start of the agent, or a change of the objective.
	Since     metav1.MicroTime `json:"since"`
	Kept      metav1.Duration  `json:"kept"`
	Missed    metav1.Duration  `json:"missed"`
	Undecided metav1.Duration  `json:"undecided"`
}

// ServiceRequests says whether a service answers requests as fast as it should.
type ServiceRequests struct {
	// Targets are the objective: each part of the requests should be answered within
	// its time.
	// +listType=atomic
	Targets []RequestTarget `json:"targets"`
	// Source is where the durations are read: metrics, socket or query.
	Source string `json:"source"`
	// Series is the histogram that the manager reads from Prometheus. Absent: the
	// source is another one.
	Series *RequestSeries `json:"series,omitempty"`
	// State is Kept, Missed or Undecided, for the requests alone. Cause is why it is
	// not Kept: one of ServiceObjective, or no-source, too-few or straddled. Trouble is
	// the reason of no-source, such as connect, redirect or reset. Since is the time at
	// which State began, on the clock of the node.
	State   string            `json:"state"`
	Since   *metav1.MicroTime `json:"since,omitempty"`
	Cause   string            `json:"cause,omitempty"`
	Trouble string            `json:"trouble,omitempty"`
	// Percentile is the target that decided State, such as p99, in the last window
	// with a verdict. Measured is a time within which this part of the requests was
	// answered; absent: no bucket of the histogram is that long.
	Percentile string           `json:"percentile,omitempty"`
	Measured   *metav1.Duration `json:"measured,omitempty"`
	// Quiet is such a time in the best window of about an hour in which BE work caused
	// hardly any waits. Absent: there was none. TooShort says that the target was missed in
	// it: it cannot be kept on this node, whatever BE work does.
	Quiet    *metav1.Duration `json:"quiet,omitempty"`
	TooShort bool             `json:"tooShort,omitempty"`
	// Total is the number of requests in the last window whose time is known. Of Unknown
	// requests besides, the source socket could not tell how long they took: with more
	// than one in a hundred of these, there is no verdict.
	Total   int64 `json:"total,omitempty"`
	Unknown int64 `json:"unknown,omitempty"`
	// Buckets is the histogram of that window, without empty buckets. Histograms of
	// several pods may be added up if their buckets have the same ends.
	// +listType=atomic
	Buckets []RequestBucket `json:"buckets,omitempty"`
	// Spent says how the service spent the time of that window, if its requests were too
	// slow and its threads hardly waited for a CPU.
	Spent *RequestTime `json:"spent,omitempty"`
}

// RequestTime says how a service spent the time of a window. What is absent was not
// measured.
type RequestTime struct {
	Window metav1.Duration `json:"window"`
	// MemoryStall and IOStall are the times in which at least one of its threads stalled on
	// memory, and on a disk (pressure stall information).
	MemoryStall *metav1.Duration `json:"memoryStall,omitempty"`
	IOStall     *metav1.Duration `json:"ioStall,omitempty"`
	// CPUPerRequest is the CPU time of a request on average, and UsualCPUPerRequest that of
	// earlier windows with about as many requests that kept the objective.
	CPUPerRequest      *metav1.Duration `json:"cpuPerRequest,omitempty"`
	UsualCPUPerRequest *metav1.Duration `json:"usualCPUPerRequest,omitempty"`
}

// RequestTarget is the time within which a part of the requests should be answered.
type RequestTarget struct {
	Percentile string          `json:"percentile"` // such as p99
	Within     metav1.Duration `json:"within"`
}

// RequestBucket is a number of requests that took longer than Above and at most
// UpTo. Without UpTo, it has no end.
type RequestBucket struct {
	Above metav1.Duration  `json:"above"`
	UpTo  *metav1.Duration `json:"upTo,omitempty"`
	Count int64            `json:"count"`
}

// RequestSeries is a Prometheus histogram: its name without the suffix _bucket, and
// the labels of those of its series that count.
type RequestSeries struct {
	Family string            `json:"family"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Queried is what Prometheus says about the requests of those services of a node
// whose objective has the source query.
type Queried struct {
	// +listType=atomic
	Services []QueriedService `json:"services,omitempty"`
}

// QueriedService has the requests of one pod since its counters began, or the reason
// why they could not be read.
type QueriedService struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Series is the histogram that was asked for.
	Series RequestSeries `json:"series"`
	// At is the time at which Prometheus read the pod, on the clock of Prometheus.
	// Of several series, it is the earliest time.
	At *metav1.MicroTime `json:"at,omitempty"`
	// Ends are the ends of the buckets as in the label le, in ascending order. Counts
	// are the requests that were not longer than each end.
	// +listType=atomic
	Ends []string `json:"ends,omitempty"`
	// +listType=atomic
	Counts []int64 `json:"counts,omitempty"`
	// Trouble is the reason; see ServiceRequests. Empty: they were read.
	Trouble string `json:"trouble,omitempty"`
}

// ObjectiveShare is the part of the waiting time that one kind of work caused.
type ObjectiveShare struct {
	// Kind is the cause for which this work is to blame; see ServiceObjective.Cause.
	Kind    string `json:"kind"`
	Percent int32  `json:"percent"`
}

// ObjectiveRunner is work that had a CPU for which a service waited.
type ObjectiveRunner struct {
	// Namespace and Pod name a pod. Other work has a name in Pod alone: a workload
	// of a rule; (other BE) for BE work that has ended or has no counter of its own,
	// likewise for other classes; (kernel), (others) for work that no rule matches,
	// (idle) and (elsewhere).
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod"`
	// Kind is the cause for which this work is to blame, such as best-effort.
	Kind string `json:"kind"`
	// Time is the time for which the service waited while this work had the CPU.
	Time metav1.Duration `json:"time"`
}
