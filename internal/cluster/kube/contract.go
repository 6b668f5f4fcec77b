package kube

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/contracttext"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// A choiceText is the content of the annotation tenon.sh/cpus.
type choiceText struct {
	Version    int                    `json:"v"`
	Topology   string                 `json:"topology"`
	Policy     string                 `json:"policy"`
	CPUs       unit.CPUSet            `json:"cpus"`
	Domain     unit.CPUSet            `json:"domain"`
	Containers map[string]unit.CPUSet `json:"containers"`
}

// ContractAnnotations returns the annotations that tell the agent of a node which
// CPUs the scheduler chose for a pod. m is the topology of the node.
func ContractAnnotations(p *corev1.Pod, m *pick.Map, c place.Contract) map[string]string {
	var room [1024]byte
	all := make(map[string]string, 3)
	all[AnnotationCPUs] = string(contracttext.AppendChoice(room[:0], &c.Choice))
	var own unit.CPUSet
	if c.Policy != cpus.Pool {
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
		all[AnnotationCPUSet] = string(contracttext.AppendACK(room[:0], names, m, &c.Choice))
	}
	return all
}

// ChoiceOf returns the CPUs that a scheduler chose, from the annotations of a
// pod. It tries the annotation of Tenon's scheduler first, then that of
// Koordinator's scheduler, whose annotation lacks the topology. The second
// result is false if no annotation can be read.
func ChoiceOf(p *corev1.Pod) (cpus.Choice, bool, []Fault) {
	text, given := p.Annotations[AnnotationCPUs]
	if !given {
		status, faults := ResourceStatusOf(p)
		if status.CPUs.Empty() {
			return cpus.Choice{}, false, faults
		}
		return cpus.Choice{Policy: cpus.Exclusive, CPUs: status.CPUs}, true, faults
	}
	if c, read := contracttext.ReadChoice(text); read {
		return c, true, nil
	}
	// Another program may have written the same JSON with other spaces, or in another order.
	var v choiceText
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return cpus.Choice{}, false, faultOf(AnnotationCPUs, "not the choice of a scheduler: %s", oneLine(err))
	}
	policy, known := cpus.ParsePolicy(v.Policy)
	hash, hashed := cpus.ParseHash(v.Topology)
	switch {
	case v.Version != contracttext.Version:
		return cpus.Choice{}, false, fieldFault(AnnotationCPUs, "v", fmt.Sprintf("want %d: the scheduler of another release wrote it; replace the pod, then its scheduler writes it anew", contracttext.Version))
	case !known:
		return cpus.Choice{}, false, wordFault(AnnotationCPUs, "policy", v.Policy, cpus.Policies())
	case !hashed:
		return cpus.Choice{}, false, fieldFault(AnnotationCPUs, "topology", "want 16 hexadecimal digits")
	}
	return cpus.Choice{Topology: hash, Policy: policy, CPUs: v.CPUs, Domain: v.Domain, Containers: v.Containers}, true, nil
}
