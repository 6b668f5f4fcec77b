package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeReport is what the agent of a node found, decided and can do. It has the
// name of its node. The agent writes all of the status but Published, which is
// the manager's.
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

// NodeReportStatus is the report.
type NodeReportStatus struct {
	// Reported is when the agent wrote it, by the clock of the node. The manager
	// goes by when it saw the report change: clocks differ.
	Reported metav1.MicroTime `json:"reported,omitempty"`
	// Agent is the version of the agent.
	Agent string `json:"agent,omitempty"`
	// Sequence counts the reports of one run of the agent, and Run names the run.
	Sequence int64  `json:"sequence,omitempty"`
	Run      string `json:"run,omitempty"`

	// Usage is that of the node as a whole, lately.
	Usage Usage `json:"usage,omitempty"`
	// Percentiles are those of the node's use over some windows.
	// +listType=map
	// +listMapKey=window
	Percentiles []Percentiles `json:"percentiles,omitempty"`
	// Pods counts the pods of each QoS class, and Unmanaged those left alone.
	Pods map[string]int32 `json:"pods,omitempty"`

	// Batch is the amount that BE work may request, as the agent computed it.
	Batch Batch `json:"batch,omitempty"`
	// Published is what the manager made of it.
	Published *Published `json:"published,omitempty"`

	// Isolation is the mechanism of the isolation ladder that is in use.
	Isolation string `json:"isolation,omitempty"`
	// Means says by what each feature is done on this node, or why it is not.
	// +listType=map
	// +listMapKey=feature
	Means []Means `json:"means,omitempty"`
	// Conditions: ConfigAccepted, PodsKnown, Suppressing, and one of each feature
	// that is asked for (CPUQOS, CPUBurst, MemoryQOS, Resctrl, BlockIO, Eviction):
	// False with the reason where the node cannot do it.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Usage is an amount of CPU and memory.
//
// As everywhere here, quantities have no exponent: whoever reads 1e2147483647
// computes for hours.
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
	// Window is its length: 5m0s.
	Window metav1.Duration `json:"window"`
	P50    Usage           `json:"p50,omitempty"`
	P90    Usage           `json:"p90,omitempty"`
	P95    Usage           `json:"p95,omitempty"`
	P99    Usage           `json:"p99,omitempty"`
}

// Batch is the amount that BE work may request.
type Batch struct {
	// CPU is in CPUs; kubernetes.io/batch-cpu counts thousandths of one.
	CPU    *BatchAmount `json:"cpu,omitempty"`
	Memory *BatchAmount `json:"memory,omitempty"`
}

// BatchAmount is an amount with all that explains it.
type BatchAmount struct {
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Amount resource.Quantity `json:"amount"`
	// Policy is the formula: usage, request or maxUsageRequest.
	Policy string `json:"policy"`
	// Over is the time over which use was averaged.
	Over metav1.Duration `json:"over,omitempty"`
	// Terms add up to Amount.
	Terms []BatchTerm `json:"terms,omitempty"`
	// Formula is what the formula gives now, and Held why that is not the amount
	// yet.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Formula resource.Quantity `json:"formula"`
	Held    string            `json:"held,omitempty"`
	// Degraded says which input is missing and what follows.
	Degraded string `json:"degraded,omitempty"`
	// Requested is what the pods that run on the node request of this resource
	// (kubernetes.io/batch-cpu, kubernetes.io/batch-memory), as a kubelet counts
	// that starts and admits them anew; but for those that came while the others
	// requested more than Amount. Absent: the agent does not say.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Requested *resource.Quantity `json:"requested,omitempty"`
}

// BatchTerm is one part of an amount: above 0 what adds to it, below 0 what is
// taken away.
type BatchTerm struct {
	Name string `json:"name"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Amount resource.Quantity `json:"amount"`
	// Text goes on where the amount ends: "used by LS".
	Text string `json:"text,omitempty"`
}

// Published is what the node's status has of batch resources, by the manager.
type Published struct {
	// CPU and Memory are absent where the node has none.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,19}(\.[0-9]{1,9})?([KMGTPE]i|[numkMGTPE])?$`
	Memory *resource.Quantity `json:"memory,omitempty"`
	// At is when they were last written.
	At metav1.MicroTime `json:"at,omitempty"`
	// Reason says why it is what it is, or why it differs from Batch.
	Reason string `json:"reason,omitempty"`
}

// Means is how a feature is done on this node.
type Means struct {
	Feature string `json:"feature"`
	// By is the mechanism of the kernel in use; empty: none.
	By string `json:"by,omitempty"`
	// Why says why the feature is not available, or not fully.
	Why string `json:"why,omitempty"`
}
