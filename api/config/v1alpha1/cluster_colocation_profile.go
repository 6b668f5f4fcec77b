package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SkipUpdateResources is an annotation of a profile. With the value "true", the
// profile keeps the CPU and memory of its pods unchanged. Pods keep the
// annotation, to show why they have native resources.
const SkipUpdateResources = "config.koordinator.sh/skip-update-resources"

// ClusterColocationProfile changes new pods, so that workloads become batch
// work without a change of their manifests. All profiles that match a pod are
// applied, in the order of their names.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.qosClass`
// +kubebuilder:printcolumn:name="Priority",type=string,JSONPath=`.spec.priorityClassName`
// +kubebuilder:printcolumn:name="Probability",type=string,JSONPath=`.spec.probability`
type ClusterColocationProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterColocationProfileSpec   `json:"spec,omitempty"`
	Status ClusterColocationProfileStatus `json:"status,omitempty"`
}

// ClusterColocationProfileList is a list of ClusterColocationProfile.
//
// +kubebuilder:object:root=true
type ClusterColocationProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterColocationProfile `json:"items"`
}

// ClusterColocationProfileSpec selects pods and describes the changes.
type ClusterColocationProfileSpec struct {
	// NamespaceSelector selects pods by the labels of their namespace. Absent
	// or empty: all namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Selector selects pods by their labels. Absent or empty: all pods.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Probability is the fraction of the selected pods that the profile changes: a percentage
	// such as "30%", or a number from 0 to 100. Absent: all.
	// +optional
	// +kubebuilder:validation:XIntOrString
	Probability *intstr.IntOrString `json:"probability,omitempty"`

	// QoSClass is the value for the label koordinator.sh/qosClass.
	// +optional
	// +kubebuilder:validation:Enum=LSE;LSR;LS;BE;SYSTEM
	QoSClass string `json:"qosClass,omitempty"`
	// PriorityClassName is the priority class for the pod. The API server takes
	// the priority of the pod from this class.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// KoordinatorPriority is the value for the label koordinator.sh/priority.
	// +optional
	KoordinatorPriority *int32 `json:"koordinatorPriority,omitempty"`
	// SchedulerName is the scheduler for the pod.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// Labels and Annotations are set on the pod. They replace existing values.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// LabelKeysMapping copies label values. The key of an entry is the label to
	// copy, and the value of the entry is the key of the new label.
	// +optional
	LabelKeysMapping map[string]string `json:"labelKeysMapping,omitempty"`
	// AnnotationKeysMapping copies annotations in the same way.
	// +optional
	AnnotationKeysMapping map[string]string `json:"annotationKeysMapping,omitempty"`
	// LabelSuffixes has suffixes for the values of existing labels, by key.
	// +optional
	LabelSuffixes map[string]string `json:"labelSuffixes,omitempty"`

	// Patch is a strategic merge patch for the pod. It is applied last.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Patch runtime.RawExtension `json:"patch,omitempty"`
}

// ClusterColocationProfileStatus tells whether all pods that match the profile
// have its changes.
type ClusterColocationProfileStatus struct {
	// Conditions has the condition Applied. It is False while a pod runs that
	// matches the profile but was created without it, because the webhooks could
	// not be reached.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
