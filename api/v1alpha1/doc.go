// Package v1alpha1 is Tenon's own Kubernetes API: the report of a node's agent.
//
// +kubebuilder:object:generate=true
// +groupName=tenon.sh
package v1alpha1
