// Package v1alpha1 is the part of Koordinator's configuration API that Tenon
// serves under Koordinator's name, so that existing manifests work.
//
// +kubebuilder:object:generate=true
// +groupName=config.koordinator.sh
package v1alpha1
