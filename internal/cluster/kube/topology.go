package kube

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/unit"
)

// The policies of the annotation resource-spec.
var (
	bindPolicies      = []string{"", "Default", "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst"}
	exclusivePolicies = []string{"", "None", "PCPULevel", "NUMANodeLevel"}
)

// A ResourceSpec is what the owner of a pod asks of its CPUs: the annotation
// resource-spec.
type ResourceSpec struct {
	RequiredCPUBindPolicy       string `json:"requiredCPUBindPolicy"`
	PreferredCPUBindPolicy      string `json:"preferredCPUBindPolicy"`
	PreferredCPUExclusivePolicy string `json:"preferredCPUExclusivePolicy"`
}

// ResourceSpecOf reads the annotation resource-spec; zero if there is none.
func ResourceSpecOf(p *corev1.Pod) (ResourceSpec, []Fault) {
	text, given := p.Annotations[AnnotationResourceSpec]
	if !given {
		return ResourceSpec{}, nil
	}
	var s ResourceSpec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return ResourceSpec{}, faultOf(AnnotationResourceSpec, "not JSON keys with text: %s", oneLine(err))
	}
	var faults []Fault
	for _, c := range []struct {
		field, word string
		want        []string
	}{
		{"requiredCPUBindPolicy", s.RequiredCPUBindPolicy, bindPolicies},
		{"preferredCPUBindPolicy", s.PreferredCPUBindPolicy, bindPolicies},
		{"preferredCPUExclusivePolicy", s.PreferredCPUExclusivePolicy, exclusivePolicies},
	} {
		faults = append(faults, wordFault(AnnotationResourceSpec, c.field, c.word, c.want)...)
	}
	if len(faults) > 0 {
		return ResourceSpec{}, faults
	}
	return s, nil
}

// A ResourceStatus is what the scheduler chose for a pod: the annotation
// resource-status.
type ResourceStatus struct {
	// CPUs are its own; empty: none were chosen.
	CPUs unit.CPUSet
	// NUMANodes are those whose resources it was given.
	NUMANodes []NUMAResource
}

// NUMAResource is what a pod was given of one NUMA node.
type NUMAResource struct {
	Node      int32               `json:"node"`
	Resources corev1.ResourceList `json:"resources"`
}

// ResourceStatusOf reads the annotation resource-status; zero if there is none.
func ResourceStatusOf(p *corev1.Pod) (ResourceStatus, []Fault) {
	text, given := p.Annotations[AnnotationResourceStatus]
	if !given {
		return ResourceStatus{}, nil
	}
	var raw struct {
		CPUSet    string         `json:"cpuset"`
		NUMANodes []NUMAResource `json:"numaNodeResources"`
	}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return ResourceStatus{}, faultOf(AnnotationResourceStatus, `not of the form {"cpuset":"0-3","numaNodeResources":[…]}: %s`, oneLine(err))
	}
	set, err := unit.ParseCPUSet(raw.CPUSet)
	if err != nil {
		return ResourceStatus{}, fieldFault(AnnotationResourceStatus, "cpuset", err.Error())
	}
	return ResourceStatus{set, raw.NUMANodes}, nil
}
