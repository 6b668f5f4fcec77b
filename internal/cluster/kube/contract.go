package kube

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/decide/place"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// contractVersion is the version of the annotation tenon.sh/cpus.
const contractVersion = 1

// A contractText is the content of the annotation tenon.sh/cpus.
type contractText struct {
	Version    int                    `json:"v"`
	Topology   string                 `json:"topology"`
	Grade      string                 `json:"grade"`
	CPUs       unit.CPUSet            `json:"cpus"`
	Home       unit.CPUSet            `json:"home,omitzero"`
	Containers map[string]unit.CPUSet `json:"containers,omitempty"`
}

// ackCPUs is ACK's annotation cpuset: container, NUMA node, elems, CPU.
type ackCPUs map[string]map[string]struct {
	Elems map[string]struct{} `json:"elems"`
}

// ContractAnnotations returns the annotations in which the scheduler writes what it
// chose for a pod. The agent of the node reads them. m is the topology of the node.
func ContractAnnotations(p *corev1.Pod, m *pick.Map, c place.Contract) (map[string]string, error) {
	all := map[string]string{}
	put := func(key string, v any) error {
		text, err := json.Marshal(v)
		all[key] = string(text)
		return err
	}
	err := put(AnnotationCPUs, contractText{
		Version: contractVersion, Topology: c.Topology.String(), Grade: c.Grade.String(), CPUs: c.CPUs, Home: c.Home, Containers: c.Containers,
	})
	status := struct {
		CPUSet    string         `json:"cpuset,omitempty"`
		NUMANodes []NUMAResource `json:"numaNodeResources,omitempty"`
	}{}
	if c.Grade != pick.Pooled {
		status.CPUSet = c.CPUs.String()
	}
	for _, n := range c.Nodes {
		list := corev1.ResourceList{corev1.ResourceCPU: milliQuantity(n.CPU)}
		if n.Memory > 0 {
			list[corev1.ResourceMemory] = MemoryQuantity(n.Memory)
		}
		status.NUMANodes = append(status.NUMANodes, NUMAResource{int32(n.NUMA), list})
	}
	err = cmp.Or(err, put(AnnotationResourceStatus, status))
	if word := p.Annotations[AnnotationCPUSetScheduler]; word == "true" || word == "required" {
		err = cmp.Or(err, put(AnnotationCPUSet, ackOf(p, m, c)))
	}
	return all, err
}

// ackOf returns ACK's annotation cpuset. In it, a container without its own
// CPUs has all CPUs of the pod.
func ackOf(p *corev1.Pod, m *pick.Map, c place.Contract) ackCPUs {
	all := ackCPUs{}
	for _, container := range p.Spec.Containers {
		set, own := c.Containers[container.Name]
		if !own {
			set = c.CPUs
		}
		nodes := map[string]struct {
			Elems map[string]struct{} `json:"elems"`
		}{}
		for numa, cpus := range m.Nodes(set) {
			elems := map[string]struct{}{}
			for cpu := range cpus.All() {
				elems[strconv.Itoa(int(cpu))] = struct{}{}
			}
			nodes[strconv.Itoa(int(numa))] = struct {
				Elems map[string]struct{} `json:"elems"`
			}{elems}
		}
		all[container.Name] = nodes
	}
	return all
}

// ContractOf reads what a scheduler chose from the annotations of a pod. This
// is the choice of Tenon's scheduler. If there is none, it is that of
// Koordinator's scheduler, which does not name its topology. ContractOf returns
// false if the pod has no choice that can be read.
func ContractOf(p *corev1.Pod) (place.Contract, bool, []Fault) {
	text, given := p.Annotations[AnnotationCPUs]
	if !given {
		status, faults := ResourceStatusOf(p)
		if status.CPUs.Empty() {
			return place.Contract{}, false, faults
		}
		return place.Contract{Grade: pick.Own, CPUs: status.CPUs, Nodes: sharesOf(status)}, true, faults
	}
	var v contractText
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return place.Contract{}, false, faultOf(AnnotationCPUs, "not the choice of a scheduler: %s", oneLine(err))
	}
	grade, known := pick.ParseGrade(v.Grade)
	hash, hashed := pick.ParseHash(v.Topology)
	switch {
	case v.Version != contractVersion:
		return place.Contract{}, false, fieldFault(AnnotationCPUs, "v", "want "+strconv.Itoa(contractVersion))
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
			NUMA: node.NUMANode(n.Node), CPU: unit.MilliCPU(n.Resources.Cpu().MilliValue()), Memory: unit.Bytes(n.Resources.Memory().Value()),
		})
	}
	slices.SortFunc(all, func(a, b place.NodeShare) int { return cmp.Compare(a.NUMA, b.NUMA) })
	return all
}
