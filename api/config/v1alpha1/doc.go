// Package v1alpha1 is the part of Koordinator's configuration API that Tenon
// serves under its name, so that manifests written for Koordinator hold.
//
// +kubebuilder:object:generate=true
// +groupName=config.koordinator.sh
package v1alpha1
