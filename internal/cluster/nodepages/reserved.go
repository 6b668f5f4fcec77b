package nodepages

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/model/unit"
)

// annotationReservation reserves CPUs of a node by number (docs/kubernetes.md).
const annotationReservation = "node.koordinator.sh/reservation"

// noCPUs returns why the node has no CPU for pods, because all are reserved. It
// returns nil if there are some.
func (n Node) noCPUs() []string {
	var all []string
	for _, text := range []string{n.KubeletReserves(string(corev1.ResourceCPU)), n.AllReserved()} {
		if text != "" {
			all = append(all, text)
		}
	}
	return all
}

// KubeletReserves returns why the node has nothing of a resource for pods, if
// this is CPU and the kubelet reserves all of it. Otherwise it returns "".
func (n Node) KubeletReserves(resource string) string {
	has := n.Status.Capacity[corev1.ResourceCPU]
	left, known := n.Status.Allocatable[corev1.ResourceCPU]
	if resource != string(corev1.ResourceCPU) || !known || left.Sign() > 0 || has.Sign() <= 0 {
		return ""
	}
	return fmt.Sprintf("no CPU is left for pods: the kubelet reserves %s (reservedSystemCPUs, systemReserved or kubeReserved)", allOf(int(quantity.Whole(has, unit.Up))))
}

// AllReserved returns why no pod can own a CPU of the node, if all its CPUs are
// reserved, and what reserves them. Otherwise it returns "".
func (n Node) AllReserved() string {
	if n.Report == nil || n.Report.Status.CPUs == nil {
		return ""
	}
	all, _, reserved, err := readCPUs(n.Report.Status.CPUs)
	if err != nil || all.Empty() || !reserved.Contains(all) {
		return ""
	}
	by := "the kubelet (reservedSystemCPUs), the file of tenond (cpus), the kernel (isolcpus) or work outside pods"
	switch said := n.annotated().Intersect(all); {
	case said == all:
		by = "the annotation " + annotationReservation
	case !said.Empty():
		by = fmt.Sprintf("the annotation %s (%v), and for the others %s", annotationReservation, said, by)
	}
	verb := "are"
	if all.Len() == 1 {
		verb = "is"
	}
	return fmt.Sprintf("no CPU is left for pods that ask for CPUs: %s %s reserved, by %s", allOf(all.Len()), verb, by)
}

// allOf prints the number of all CPUs of a node.
func allOf(n int) string {
	if n == 1 {
		return "its only CPU"
	}
	return fmt.Sprintf("all %d", n)
}

// annotated returns the CPUs that the annotation of the node reserves. An
// annotation that cannot be read reserves none, as for tenond, which reports the
// fault.
func (n Node) annotated() unit.CPUSet {
	var said struct {
		CPUs string `json:"reservedCPUs"`
	}
	if json.Unmarshal([]byte(n.Annotations[annotationReservation]), &said) != nil {
		return unit.CPUSet{}
	}
	set, err := unit.ParseCPUSet(said.CPUs)
	if err != nil {
		return unit.CPUSet{}
	}
	return set
}
