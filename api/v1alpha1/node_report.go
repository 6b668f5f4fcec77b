package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReport is the report of a node's agent: its findings, its decisions and
// the capabilities of the node. It has the name of the node. The agent writes
// the status except Published, which the manager writes.
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
	// Reported is the time of the report on the clock of the node. The manager
	// uses the time at which it saw a change, because clocks differ.
	Reported metav1.MicroTime `json:"reported,omitempty"`
	// Agent is the version of the agent.
	Agent string `json:"agent,omitempty"`
	// Sequence counts the reports of one run of the agent. Run identifies the
	// run.
	Sequence int64  `json:"sequence,omitempty"`
	Run      string `json:"run,omitempty"`

	// Usage is the recent use of the whole node.
	Usage Usage `json:"usage,omitempty"`
	// Percentiles describe the use of the node over several windows.
	// +listType=map
	// +listMapKey=window
	Percentiles []Percentiles `json:"percentiles,omitempty"`
	// Pods counts the managed pods of each QoS class, and the other pods as
	// Unmanaged.
	Pods map[string]int32 `json:"pods,omitempty"`

	// Batch is the amount that BE work may request, as the agent computed it.
	Batch Batch `json:"batch,omitempty"`
	// CPUs are the CPUs of the node and the pods that hold some of them. Absent:
	// the agent does not place pods on CPUs.
	CPUs *CPUs `json:"cpus,omitempty"`
	// Published is the result of the manager.
	Published *Published `json:"published,omitempty"`

	// Isolation is the isolation mechanism in use; empty: isolation is off.
	Isolation string `json:"isolation,omitempty"`
	// Trials are the results of the trials of isolation mechanisms on the
	// services of this node. Absent: the agent has examined no mechanism yet.
	Trials *Trials `json:"trials,omitempty"`
	// Means says which mechanism provides each feature on this node, or why
	// none does.
	// +listType=map
	// +listMapKey=feature
	Means []Means `json:"means,omitempty"`
	// Conditions are ConfigAccepted, PodsKnown, Suppressing, and one for each
	// requested feature (CPUQOS, CPUBurst, MemoryQOS, Resctrl, BlockIO,
	// Eviction). A feature that the node cannot provide is False, with the
	// reason.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

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

// Percentiles is the distribution of the node's use over a window.
type Percentiles struct {
	// Window is the length of the window: 5m0s.
	Window metav1.Duration `json:"window"`
	P50    Usage           `json:"p50,omitempty"`
	P90    Usage           `json:"p90,omitempty"`
	P95    Usage           `json:"p95,omitempty"`
	P99    Usage           `json:"p99,omitempty"`
}

// Batch is the amount that BE work may request.
type Batch struct {
	// CPU is in CPUs, while kubernetes.io/batch-cpu is in thousandths of a CPU.
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
	// Over is the time over which use was averaged.
	Over metav1.Duration `json:"over,omitempty"`
	// Terms add up to Amount.
	Terms []BatchTerm `json:"terms,omitempty"`
	// Formula is the present result of the formula. Held is the reason why
	// Amount differs from it.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Formula resource.Quantity `json:"formula"`
	Held    string            `json:"held,omitempty"`
	// Degraded names a missing input and its effect; empty: no input is
	// missing.
	Degraded string `json:"degraded,omitempty"`
	// Requested is the sum of the requests of the node's running pods for this
	// resource (kubernetes.io/batch-cpu, kubernetes.io/batch-memory). A kubelet
	// that restarts and admits the pods again would count the same sum. The sum
	// excludes pods that started while the other pods requested more than
	// Amount.
	// Absent: the agent does not report it.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Requested *resource.Quantity `json:"requested,omitempty"`
}

// BatchTerm is one summand of an amount. A negative amount is subtracted.
type BatchTerm struct {
	Name string `json:"name"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Amount resource.Quantity `json:"amount"`
	// Text follows the amount when the term is printed: "used by LS".
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
	// At is the time of the last write.
	At metav1.MicroTime `json:"at,omitempty"`
	// Reason explains the amounts, or why they differ from Batch.
	Reason string `json:"reason,omitempty"`
}

// Means says which mechanism provides a feature on this node.
type Means struct {
	Feature string `json:"feature"`
	// By is the kernel mechanism in use; empty: none.
	By string `json:"by,omitempty"`
	// Why is the reason why the feature is not available or not complete.
	Why string `json:"why,omitempty"`
}

// CPUs are the CPUs of a node and the pods that hold some of them. Sets of CPUs
// are lists as in cpuset.cpus: 0-3,8.
type CPUs struct {
	// Caches are the parts of the L3 caches in each NUMA node. Together they are
	// all online CPUs.
	// +listType=atomic
	Caches []Cache `json:"caches"`
	// Cores lists the CPUs of each core that has more than one CPU. Semicolons
	// separate the cores: 0,52;1,53. A CPU that is not in the list is a core of
	// its own.
	Cores string `json:"cores,omitempty"`
	// Reserved are the CPUs that the scheduler gives to no pod.
	Reserved string `json:"reserved,omitempty"`
	// Keep is the number of CPUs that must stay shared.
	Keep int32 `json:"keep,omitempty"`
	// Manager is another program that writes the CPUs of pods on this node, such
	// as the static policy of the kubelet; empty: none.
	Manager string `json:"manager,omitempty"`
	// Held says which pod holds which CPUs.
	// +listType=map
	// +listMapKey=uid
	Held []HeldCPUs `json:"held,omitempty"`
	// Refused are the pods that demand CPUs and have none, with the reason.
	// +listType=map
	// +listMapKey=uid
	Refused []RefusedCPUs `json:"refused,omitempty"`
}

// Cache is the part of one L3 cache in one NUMA node.
type Cache struct {
	Socket int32 `json:"socket"`
	NUMA   int32 `json:"numa"`
	L3     int32 `json:"l3"`
	// Kind is 0 for the fastest kind of core of the node; slower kinds have
	// higher numbers.
	Kind int32  `json:"kind,omitempty"`
	CPUs string `json:"cpus"`
}

// HeldCPUs are the CPUs that one pod holds.
type HeldCPUs struct {
	UID string `json:"uid"`
	// Grade is own, seats or pool (docs/scheduling.md).
	Grade string `json:"grade"`
	// CPUs are its own CPUs, its seats, or those of its pool at this time.
	CPUs string `json:"cpus"`
	// Home are the CPUs of the cache, NUMA node, socket or machine that seats
	// and pools share.
	Home string `json:"home,omitempty"`
	// Request is the CPU request of seats and pools, in thousandths of a CPU.
	Request int64 `json:"request,omitempty"`
	// Apart is core or numa if the pod demands that no other pod with the same
	// demand shares its cores or its NUMA nodes; empty: it may share them with
	// all pods.
	Apart string `json:"apart,omitempty"`
	// By names the component that chose the CPUs: scheduler or node.
	By string `json:"by,omitempty"`
	// Why is the reason why the node and not the scheduler chose the CPUs.
	Why string `json:"why,omitempty"`
}

// RefusedCPUs is a pod that demands CPUs and has none.
type RefusedCPUs struct {
	UID string `json:"uid"`
	Why string `json:"why"`
}
