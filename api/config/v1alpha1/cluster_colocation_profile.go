package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SkipUpdateResources is the annotation of a profile, with the value "true",
// that leaves the CPU and memory of the pods that it matches as they are. Pods
// carry it on, so that it is seen on them why they have native amounts.
const SkipUpdateResources = "config.koordinator.sh/skip-update-resources"

// ClusterColocationProfile changes pods as they are created, so that workloads
// become batch work without a change to their manifests. The profiles that
// match a pod apply in the order of their names.
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

// ClusterColocationProfileSpec says which pods are changed, and how.
type ClusterColocationProfileSpec struct {
	// NamespaceSelector selects by the labels of the pod's namespace; missing or
	// empty, it selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// Selector selects by the labels of the pod; missing or empty, it selects all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Probability is the part of the matching pods that is changed: a percentage
	// such as "30%", or a number from 0 to 100; missing, all are.
	// +optional
	// +kubebuilder:validation:XIntOrString
	Probability *intstr.IntOrString `json:"probability,omitempty"`

	// QoSClass becomes the label koordinator.sh/qosClass.
	// +optional
	// +kubebuilder:validation:Enum=LSE;LSR;LS;BE;SYSTEM
	QoSClass string `json:"qosClass,omitempty"`
	// PriorityClassName becomes that of the pod, with its value.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// KoordinatorPriority becomes the label koordinator.sh/priority.
	// +optional
	KoordinatorPriority *int32 `json:"koordinatorPriority,omitempty"`
	// SchedulerName becomes that of the pod.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// Labels and Annotations are added, over those that the pod has.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// LabelKeysMapping copies the value of a label to another: from key to value.
	// +optional
	LabelKeysMapping map[string]string `json:"labelKeysMapping,omitempty"`
	// AnnotationKeysMapping does so with annotations.
	// +optional
	AnnotationKeysMapping map[string]string `json:"annotationKeysMapping,omitempty"`
	// LabelSuffixes are appended to the values of labels that the pod has.
	// +optional
	LabelSuffixes map[string]string `json:"labelSuffixes,omitempty"`

	// Patch is a strategic merge patch of the pod, applied last.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Patch runtime.RawExtension `json:"patch,omitempty"`
}

// ClusterColocationProfileStatus is empty.
type ClusterColocationProfileStatus struct{}
