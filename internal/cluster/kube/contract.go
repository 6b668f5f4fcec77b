package kube

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/contracttext"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A contractText is the content of the annotation tenon.sh/cpus.
type contractText struct {
	Version    int                    `json:"v"`
	Topology   string                 `json:"topology"`
	Grade      string                 `json:"grade"`
	CPUs       unit.CPUSet            `json:"cpus"`
	Home       unit.CPUSet            `json:"home"`
	Containers map[string]unit.CPUSet `json:"containers"`
}

// ContractAnnotations returns the annotations that tell the agent of a node which
// CPUs the scheduler chose for a pod. m is the topology of the node.
func ContractAnnotations(p *corev1.Pod, m *pick.Map, c place.Contract) map[string]string {
	var room [1024]byte
	all := make(map[string]string, 3)
	all[AnnotationCPUs] = string(contracttext.AppendContract(room[:0], &c))
	var own unit.CPUSet
	if c.Grade != pick.Pooled {
		own = c.CPUs
	}
	shares := make([]contracttext.Share, len(c.Nodes))
	for i, n := range c.Nodes {
		cpu, memory := quantity.OfCPU(n.CPU), quantity.OfMemory(n.Memory)
		shares[i] = contracttext.Share{NUMA: n.NUMA, CPU: cpu.String()}
		if n.Memory > 0 {
			shares[i].Memory = memory.String()
		}
	}
	all[AnnotationResourceStatus] = string(contracttext.AppendStatus(room[:0], own, shares))
	if word := p.Annotations[AnnotationCPUSetScheduler]; word == "true" || word == "required" {
		names := make([]string, len(p.Spec.Containers))
		for i := range p.Spec.Containers {
			names[i] = p.Spec.Containers[i].Name
		}
		all[AnnotationCPUSet] = string(contracttext.AppendACK(room[:0], names, m, &c))
	}
	return all
}

// ContractOf returns the CPUs that a scheduler chose, from the annotations of a
// pod. It tries the annotation of Tenon's scheduler first, then that of
// Koordinator's scheduler, whose annotation lacks the topology. The second
// result is false if no annotation can be read.
func ContractOf(p *corev1.Pod) (place.Contract, bool, []Fault) {
	text, given := p.Annotations[AnnotationCPUs]
	if !given {
		status, faults := ResourceStatusOf(p)
		if status.CPUs.Empty() {
			return place.Contract{}, false, faults
		}
		return place.Contract{Grade: pick.Own, CPUs: status.CPUs, Nodes: sharesOf(status)}, true, faults
	}
	if c, read := contracttext.ReadContract(text); read {
		return c, true, nil
	}
	// Another program may have written the same JSON with other spaces, or in another order.
	var v contractText
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return place.Contract{}, false, faultOf(AnnotationCPUs, "not the choice of a scheduler: %s", oneLine(err))
	}
	grade, known := pick.ParseGrade(v.Grade)
	hash, hashed := pick.ParseHash(v.Topology)
	switch {
	case v.Version != contracttext.Version:
		return place.Contract{}, false, fieldFault(AnnotationCPUs, "v", "want "+strconv.Itoa(contracttext.Version))
	case !known:
		return place.Contract{}, false, wordFault(AnnotationCPUs, "grade", v.Grade, []string{"own", "seats", "pool"})
	case !hashed:
		return place.Contract{}, false, fieldFault(AnnotationCPUs, "topology", "want 16 hexadecimal digits")
	}
	return place.Contract{Topology: hash, Grade: grade, CPUs: v.CPUs, Home: v.Home, Containers: v.Containers}, true, nil
}

func sharesOf(s ResourceStatus) []place.NodeShare {
	var all []place.NodeShare
	for _, n := range s.NUMANodes {
		all = append(all, place.NodeShare{
			NUMA: node.NUMANode(n.Node), CPU: quantity.CPU(*n.Resources.Cpu(), unit.Up), Memory: unit.Bytes(quantity.Whole(*n.Resources.Memory(), unit.Up)),
		})
	}
	slices.SortFunc(all, func(a, b place.NodeShare) int { return cmp.Compare(a.NUMA, b.NUMA) })
	return all
}
