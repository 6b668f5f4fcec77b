// Package v1alpha1 is Tenon's own Kubernetes API: what a node's agent reports.
//
// +kubebuilder:object:generate=true
// +groupName=tenon.sh
package v1alpha1
