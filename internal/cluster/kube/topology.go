package kube

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A ResourceSpec is the content of the annotation resource-spec, in which the
// owner of a pod requests a kind of CPU binding.
type ResourceSpec struct {
	RequiredCPUBindPolicy       string
	PreferredCPUBindPolicy      string
	PreferredCPUExclusivePolicy string
}

// resourceSpec is the JSON form of a ResourceSpec.
type resourceSpec struct {
	RequiredBind       node.Maybe[string] `json:"requiredCPUBindPolicy" oneof:"Default FullPCPUs SpreadByPCPUs ConstrainedBurst"`
	PreferredBind      node.Maybe[string] `json:"preferredCPUBindPolicy" oneof:"Default FullPCPUs SpreadByPCPUs ConstrainedBurst"`
	PreferredExclusive node.Maybe[string] `json:"preferredCPUExclusivePolicy" oneof:"None PCPULevel NUMANodeLevel"`
}

// ResourceSpecOf reads the annotation resource-spec. The result is zero if the
// pod has none.
func ResourceSpecOf(p *corev1.Pod) (ResourceSpec, []Fault) {
	s, _, faults := read[resourceSpec](p, AnnotationResourceSpec)
	if s == nil {
		return ResourceSpec{}, faults
	}
	return ResourceSpec{s.RequiredBind.Or(""), s.PreferredBind.Or(""), s.PreferredExclusive.Or("")}, faults
}

// A ResourceStatus is the content of the annotation resource-status, in which
// Koordinator's scheduler writes the CPUs that it chose for a pod.
type ResourceStatus struct {
	// CPUs are the exclusive CPUs of the pod. It is empty if the scheduler chose none.
	CPUs unit.CPUSet
	// NUMANodes are the NUMA nodes that provide resources to the pod.
	NUMANodes []NUMAResource
}

// NUMAResource lists the resources that a pod has from one NUMA node.
type NUMAResource struct {
	Node      int32         `json:"node"`
	Resources quantity.List `json:"resources"`
}

// ResourceStatusOf reads the annotation resource-status. The result is zero if
// the pod has none.
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
