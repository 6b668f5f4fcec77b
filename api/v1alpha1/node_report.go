package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReport is the report of a node's agent: its measurements, its decisions and the
// capabilities of the node. Its name is the name of the node. The manager writes
// status.published and status.queried. The agent writes all other fields of the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nrep
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.usage.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.usage.memory`
// +kubebuilder:printcolumn:name="Batch-CPU",type=string,JSONPath=`.status.batch.cpu.amount`
// +kubebuilder:printcolumn:name="Batch-Memory",type=string,JSONPath=`.status.batch.memory.amount`
// +kubebuilder:printcolumn:name="Isolation",type=string,JSONPath=`.status.isolation`
// +kubebuilder:printcolumn:name="Reported",type=date,JSONPath=`.status.reported`
type NodeReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status NodeReportStatus `json:"status,omitempty"`
}

// NodeReportList is a list of NodeReport.
//
// +kubebuilder:object:root=true
type NodeReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeReport `json:"items"`
}

// NodeReportStatus is the content of the report.
type NodeReportStatus struct {
	// Reported is the time of the report on the clock of the node. Because
	// clocks differ, the manager uses its own time of the last change instead.
	Reported metav1.MicroTime `json:"reported,omitempty"`
	// Agent is the version of the agent.
	Agent string `json:"agent,omitempty"`
	// Sequence counts the reports of one process of the agent. Run identifies
	// the process.
	Sequence int64  `json:"sequence,omitempty"`
	Run      string `json:"run,omitempty"`

	// Usage is the recent resource usage of the whole node.
	Usage Usage `json:"usage,omitempty"`
	// Percentiles describe the resource usage of the node over several windows.
	// +listType=map
	// +listMapKey=window
	Percentiles []Percentiles `json:"percentiles,omitempty"`
	// Pods is the number of managed pods by QoS class. The key Unmanaged has
	// the number of other pods.
	Pods map[string]int32 `json:"pods,omitempty"`

	// Batch is the amount that BE work may request, as the agent computed it.
	Batch Batch `json:"batch,omitempty"`
	// Promises say how much of Batch lasts for some hours, with a probability. The
	// hours count from the last full hour (UTC) on.
	// Absent: the agent offers no batch resources.
	Promises *Promises `json:"promises,omitempty"`
	// Shadow is what the agent would do if it did not only observe. Absent: the agent
	// acts. Otherwise Batch, Promises and CPUs are absent, because pods can have none of
	// them on this node.
	Shadow *Shadow `json:"shadow,omitempty"`
	// Outlook says what the node could have given to batch work in past days.
	// Absent: the agent keeps no history, or has not read it yet.
	Outlook *Outlook `json:"outlook,omitempty"`
	// CPUs are the CPUs of the node, and the pods that hold some of them.
	// Absent: the agent does not place pods on CPUs.
	CPUs *CPUs `json:"cpus,omitempty"`
	// Published has the batch resources that the manager published for the node.
	Published *Published `json:"published,omitempty"`

	// Objectives are the services with an objective, and what the agent does about
	// those that miss theirs. Absent: no service of the node has an objective.
	Objectives *Objectives `json:"objectives,omitempty"`
	// Queried has what the manager has read from Prometheus for them. Absent: none of
	// them has the source query.
	Queried *Queried `json:"queried,omitempty"`

	// Isolation is the isolation mechanism in use; empty: isolation is off.
	Isolation string `json:"isolation,omitempty"`
	// Trials are the results of the trials of isolation mechanisms on the
	// services of this node. Absent: the agent has examined no mechanism yet.
	Trials *Trials `json:"trials,omitempty"`
	// Means has the mechanism of each feature on this node, or the reason why
	// there is none.
	// +listType=map
	// +listMapKey=feature
	Means []Means `json:"means,omitempty"`
	// Conditions are ConfigAccepted, PodsKnown, KnobsWritten, AgentHealthy,
	// Suppressing, and one for each requested feature (CPUQOS, CPUBurst, MemoryQOS, Resctrl,
	// BlockIO, Eviction). The condition of a feature that the node cannot
	// provide is False and has a reason. The last report of an agent that was
	// removed from its node has only AgentRuns, which is False.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConfigAccepted is the type of the condition about the configuration of a node.
// It is False with the reason ConfigMapMissing if the ConfigMap of the cluster
// does not exist and the node therefore lacks what it asked for.
const (
	ConfigAccepted   = "ConfigAccepted"
	ConfigMapMissing = "ConfigMapMissing"
)

// ReasonUnlikely is the reason of a condition ConfigAccepted that is True: a
// setting counts, but its author can hardly mean it.
const ReasonUnlikely = "Unlikely"

// AgentRuns is the type of the condition in the last report of an agent that was
// removed from its node. The condition is False, with the reason AgentLeft. No
// other report has it.
const (
	AgentRuns = "AgentRuns"
	AgentLeft = "AgentLeft"
)

// Usage is an amount of CPU and memory.
//
// All quantities of this API have no exponent, because a program needs hours to
// parse 1e2147483647.
type Usage struct {
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// Percentiles is the distribution of the node's resource usage in a window.
type Percentiles struct {
	// Window is the length of the window, such as 5m0s.
	Window metav1.Duration `json:"window"`
	P50    Usage           `json:"p50,omitempty"`
	P90    Usage           `json:"p90,omitempty"`
	P95    Usage           `json:"p95,omitempty"`
	P99    Usage           `json:"p99,omitempty"`
}

// Shadow is what an agent that only observes has decided and does not do.
type Shadow struct {
	// Observes is true. The agent leaves out empty objects: without this value, an agent
	// that has nothing to say yet would look like one that acts.
	Observes bool `json:"observes,omitempty"`
	// Batch is what BE work could request, and Promises say how much of it lasts.
	Batch    Batch     `json:"batch,omitempty"`
	Promises *Promises `json:"promises,omitempty"`
	// Steps are the writes that the agent would have made since it started.
	// +listType=map
	// +listMapKey=policy
	Steps []ShadowSteps `json:"steps,omitempty"`
}

// ShadowSteps is a number of writes.
type ShadowSteps struct {
	// Policy is the policy that owns the knobs, such as suppress.
	Policy string `json:"policy"`
	Count  int64  `json:"count"`
}

// Batch holds the amounts of CPU and memory that BE work may request.
type Batch struct {
	// CPU is in CPUs. (kubernetes.io/batch-cpu is in thousandths of a CPU.)
	CPU    *BatchAmount `json:"cpu,omitempty"`
	Memory *BatchAmount `json:"memory,omitempty"`
}

// BatchAmount is an amount of one resource with its explanation.
type BatchAmount struct {
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Amount resource.Quantity `json:"amount"`
	// Policy is the name of the formula: usage, request or maxUsageRequest.
	Policy string `json:"policy"`
	// Over is the time over which resource usage was averaged.
	Over metav1.Duration `json:"over,omitempty"`
	// Terms explain Amount: their sum is Amount.
	Terms []BatchTerm `json:"terms,omitempty"`
	// Formula is the present result of the formula. Held is the reason if
	// Amount differs from Formula, and otherwise empty.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Formula resource.Quantity `json:"formula"`
	Held    string            `json:"held,omitempty"`
	// Degraded names a missing input and its effect. Empty: no input is
	// missing.
	Degraded string `json:"degraded,omitempty"`
	// Requested is the sum of the requests of the node's running pods for this
	// resource (kubernetes.io/batch-cpu, kubernetes.io/batch-memory). A kubelet
	// that restarts and admits the pods again would count the same sum. A pod
	// does not count if it started while the other pods requested more than
	// Amount. Absent: the agent does not report the sum.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Requested *resource.Quantity `json:"requested,omitempty"`
}

// Promises holds what is promised of each resource. Each amount has its probability
// by itself.
type Promises struct {
	// CPU is in CPUs.
	CPU    []PromisedAmount `json:"cpu,omitempty"`
	Memory []PromisedAmount `json:"memory,omitempty"`
}

// PromisedAmount is the room for batch work that lasts for some hours.
type PromisedAmount struct {
	Hours int32 `json:"hours"`
	// Percent is the probability that at no minute of these hours the room is below
	// the amount.
	Percent int32 `json:"percent"`
	// Amount is absent while nothing is promised.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Amount *resource.Quantity `json:"amount,omitempty"`
	// Lacking is the number of windows of this length that the agent has to see before
	// it promises something. If it is 0 and there is no amount, the present room is
	// not known.
	Lacking int32 `json:"lacking,omitempty"`
	// Judged is the number of promises of the last four to eight weeks whose end is
	// known, Kept the number of those that came true.
	Judged int64 `json:"judged,omitempty"`
	Kept   int64 `json:"kept,omitempty"`
	// Skill compares these promises with a fixed quantile of the past, in percent, by their
	// quantile loss: 100 means no loss, 0 the same loss. Absent: none was judged.
	Skill *int32 `json:"skillPercent,omitempty"`
	// Better says that these promises are better than a fixed quantile of the past.
	Better bool `json:"better,omitempty"`
}

// BatchTerm is one summand of an amount. It may be negative.
type BatchTerm struct {
	Name string `json:"name"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Amount resource.Quantity `json:"amount"`
	// Text is printed after the amount, such as "used by LS".
	Text string `json:"text,omitempty"`
}

// Published holds the batch resources that the manager wrote into the node's
// status.
type Published struct {
	// CPU and Memory are absent if the node has no such resource.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Memory *resource.Quantity `json:"memory,omitempty"`
	// At is the time at which the manager last wrote the amounts.
	At metav1.MicroTime `json:"at,omitempty"`
	// Reason explains the amounts, and why they differ from Batch.
	Reason string `json:"reason,omitempty"`
}

// Means is the mechanism that provides a feature on this node.
type Means struct {
	Feature string `json:"feature"`
	// By is the kernel mechanism in use. Empty: there is none.
	By string `json:"by,omitempty"`
	// Why is the reason if the feature is not available or not complete.
	Why string `json:"why,omitempty"`
}

// CPUs are the CPUs of a node, and the pods that hold some of them. A set of
// CPUs is a list such as 0-3,8, as in cpuset.cpus.
type CPUs struct {
	// Caches are the L3 caches of each NUMA node. Each online CPU is in exactly
	// one of them.
	// +listType=atomic
	Caches []Cache `json:"caches"`
	// Cores lists the CPUs of each core that has several CPUs. Semicolons
	// separate the cores: 0,52;1,53. Each CPU that is not in the list is a core
	// of its own.
	Cores string `json:"cores,omitempty"`
	// Reserved are the CPUs that the scheduler gives to no pod.
	Reserved string `json:"reserved,omitempty"`
	// Keep is the number of CPUs that must stay shared: no pod may own them.
	Keep int32 `json:"keep,omitempty"`
	// Manager is another program that writes the CPUs of pods on this node, such
	// as the static policy of the kubelet. Empty: there is none.
	Manager string `json:"manager,omitempty"`
	// Pods lists the pods that ask for CPUs, with those that they have.
	// +listType=map
	// +listMapKey=uid
	Pods []PodCPUs `json:"pods,omitempty"`
}

// Cache is an L3 cache, or the part of it that is in one NUMA node.
type Cache struct {
	Socket int32 `json:"socket"`
	NUMA   int32 `json:"numa"`
	L3     int32 `json:"l3"`
	// Kind is 0 for the fastest kind of core of the node. Slower kinds have
	// higher numbers.
	Kind int32  `json:"kind,omitempty"`
	CPUs string `json:"cpus"`
}

// PodCPUs says which CPUs a pod has, or why it has none.
type PodCPUs struct {
	UID string `json:"uid"`
	// Pod is the name of the pod, with its namespace: shop/db.
	Pod string `json:"pod,omitempty"`
	// Policy is exclusive, shared or pool (docs/cpus.md).
	Policy string `json:"policy,omitempty"`
	// CPUs are the pod's exclusive or shared CPUs, or the present CPUs of its pool.
	// Empty: the pod asks for CPUs and has none.
	CPUs string `json:"cpus,omitempty"`
	// Domain is set for shared CPUs and pools: the CPUs of the cache, NUMA node,
	// socket or machine in which the pod shares CPUs with others.
	Domain string `json:"domain,omitempty"`
	// Request is the CPU request of the pod, in thousandths of a CPU, for shared
	// CPUs and pools.
	Request int64 `json:"request,omitempty"`
	// ExclusivePolicy is PCPULevel or NUMANodeLevel: other pods with the same
	// policy share the pod's cores or its NUMA nodes only if they find no other
	// CPUs. Empty: the pod may share them with all pods.
	ExclusivePolicy string `json:"exclusivePolicy,omitempty"`
	// By is the component that chose the CPUs: scheduler or node.
	By string `json:"by,omitempty"`
	// Code is a word that says why the pod has no CPUs, or fewer than it asks for,
	// or why the node chose them and not the scheduler. Empty: the pod has what its
	// scheduler chose. Why says the same for a reader, and Numbers has the numbers.
	// If the pod has CPUs and the code begins with Choice, or is NoChoice or
	// DomainLost, Why is a clause; else its subject is the pod: keeps its 2 CPUs.
	Code    string      `json:"code,omitempty"`
	Why     string      `json:"why,omitempty"`
	Numbers *CPUNumbers `json:"numbers,omitempty"`
}

// Pod returns the pod with a UID, or nil if the report lacks it.
func (c *CPUs) Pod(uid string) *PodCPUs {
	for i := range c.Pods {
		if c.Pods[i].UID == uid {
			return &c.Pods[i]
		}
	}
	return nil
}

// CPUNumbers are the numbers behind a reason.
type CPUNumbers struct {
	// Asked is the number of CPUs that the pod asks for, and Given the number that
	// the node could give.
	Asked int32 `json:"asked,omitempty"`
	Given int32 `json:"given,omitempty"`
	// Open is the number of open CPUs, and Stay that of those that stay open for
	// other work.
	Open int32 `json:"open,omitempty"`
	Stay int32 `json:"stay,omitempty"`
	// Others are workloads that have what the pod asks for. Not all may be named.
	// +listType=atomic
	Others []string `json:"others,omitempty"`
}
