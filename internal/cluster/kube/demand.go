package kube

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// These are the annotations in which a pod demands CPUs, and in which a
// scheduler writes its choice.
const (
	AnnotationNUMASpec    = "scheduling.koordinator.sh/numa-topology-spec"
	AnnotationACKNUMASpec = "scheduling.alibabacloud.com/numa-topology-spec"
	// AnnotationCPUSetScheduler and AnnotationCPUPolicy request ACK's
	// topology-aware CPU scheduling. AnnotationCPUSet contains its result.
	AnnotationCPUSetScheduler = "cpuset-scheduler"
	AnnotationCPUPolicy       = "cpu-policy"
	AnnotationCPUSet          = "cpuset"
	// AnnotationCPUs contains the choice of Tenon's scheduler.
	AnnotationCPUs = "tenon.sh/cpus"
)

// Results lists the annotations that only a scheduler may write, when it binds a
// pod to a node.
var Results = []string{AnnotationCPUSet, AnnotationResourceStatus, AnnotationCPUs}

// StaticBurst is the value of AnnotationCPUPolicy that demands a pool of CPUs.
const StaticBurst = "static-burst"

// constrainedBurst is the value in resource-spec that demands a pool of CPUs.
const constrainedBurst = "ConstrainedBurst"

// A NUMASpec is the content of the annotation numa-topology-spec.
type NUMASpec struct {
	NUMATopologyPolicy      string `json:"numaTopologyPolicy"`
	SingleNUMANodeExclusive string `json:"singleNUMANodeExclusive"`
}

var (
	numaPolicies   = []string{"", "None", "BestEffort", "Restricted", "SingleNUMANode"}
	numaExclusives = []string{"", "Required", "Preferred"}
	schedulerWords = []string{"", "true", "false", "required"}
	cpuPolicyWords = []string{"", StaticBurst}
)

// NUMASpecOf reads the annotation numa-topology-spec. Koordinator's annotation
// takes precedence over that of ACK.
func NUMASpecOf(p *corev1.Pod) (NUMASpec, []Fault) {
	for _, key := range [...]string{AnnotationNUMASpec, AnnotationACKNUMASpec} {
		text, given := p.Annotations[key]
		if !given {
			continue
		}
		var s NUMASpec
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return NUMASpec{}, faultOf(key, "not JSON keys with text: %s", oneLine(err))
		}
		faults := wordFault(key, "numaTopologyPolicy", s.NUMATopologyPolicy, numaPolicies)
		faults = append(faults, wordFault(key, "singleNUMANodeExclusive", s.SingleNUMANodeExclusive, numaExclusives)...)
		if len(faults) > 0 {
			return NUMASpec{}, faults
		}
		return s, nil
	}
	return NUMASpec{}, nil
}

// DemandOf returns the CPUs that a pod demands from its node. The second result is false for a
// pod without a demand, for a demand with a fault, and for a pod that Tenon leaves alone. Then the
// pod shares CPUs with others.
func DemandOf(p *corev1.Pod) (cpus.PodRequest, bool, []Fault) {
	if IsIgnored(p) {
		return cpus.PodRequest{}, false, nil
	}
	class := ClassWithDefault(p)
	spec, faults := ResourceSpecOf(p)
	numa, more := NUMASpecOf(p)
	faults = append(faults, more...)
	word, policy := p.Annotations[AnnotationCPUSetScheduler], p.Annotations[AnnotationCPUPolicy]
	faults = append(faults, wordFault(AnnotationCPUSetScheduler, "", word, schedulerWords)...)
	faults = append(faults, wordFault(AnnotationCPUPolicy, "", policy, cpuPolicyWords)...)
	ack := word == "true" || word == "required"
	burst := ack && policy == StaticBurst
	if policy == StaticBurst && !ack {
		faults = append(faults, inertFault(AnnotationCPUPolicy, "", StaticBurst+` counts with cpuset-scheduler: "true" only`)...)
	}
	if !class.Sensitive() {
		if ack {
			faults = append(faults, inertFault(AnnotationCPUSetScheduler, "", fmt.Sprintf("counts for LSE, LSR and LS pods only, and this one is %s", class))...)
		}
		return cpus.PodRequest{}, false, faults
	}
	amounts := Native(p)
	d := cpus.PodRequest{Memory: amounts.MemoryRequest.Or(0)}
	request, requested := amounts.CPURequest.Value()
	pooled := burst || spec.RequiredCPUBindPolicy == constrainedBurst || spec.PreferredCPUBindPolicy == constrainedBurst
	switch {
	case pooled || class == node.LS && !ack && numa.NUMATopologyPolicy == "SingleNUMANode":
		d.Policy, d.CPU, d.Grows = cpus.Pool, request, policy == StaticBurst
		if !requested && burst {
			return cpus.PodRequest{}, false, append(faults, faultOf(AnnotationCPUPolicy, "the pod requests no cpu")...)
		}
	case class == node.LSE || class == node.LSR:
		if !requested || request <= 0 || request%unit.CPUs(1) != 0 {
			return cpus.PodRequest{}, false, faults // the agent reports this fault in the reason of its want
		}
		d.Policy, d.CPUs = cpus.Exclusive, int(request/unit.CPUs(1))
		if ack {
			d.Containers = limitsOf(p, d.CPUs)
		}
	case ack:
		if wrong := demandLimits(p, request, &d); wrong != "" {
			return cpus.PodRequest{}, false, append(faults, faultOf(AnnotationCPUSetScheduler, "%s", wrong)...)
		}
		if d.Policy == cpus.Shared {
			faults = append(faults, unwantedSeats(p, d.CPUs)...)
		}
	default:
		return cpus.PodRequest{}, false, faults
	}
	bindOf(&d, spec, numa)
	return d, true, faults
}

// demandLimits sets the demand from ACK's annotation: each container demands as
// many CPUs as its limit. If the pod requests all of them, it owns them.
// demandLimits returns a description of a fault, or "".
func demandLimits(p *corev1.Pod, request unit.MilliCPU, d *cpus.PodRequest) string {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		limit, limited := as[unit.MilliCPU](dropZero(nativeCPU.amountIn(c.Resources.Limits, unit.Up))).Value()
		switch {
		case !limited:
			continue
		case limit%unit.CPUs(1) != 0:
			return fmt.Sprintf("container %.64q has the cpu limit %v: want a whole number of CPUs, or cpu-policy: static-burst", c.Name, limit)
		case limit > unit.CPUs(unit.MaxCPUs):
			return fmt.Sprintf("container %.64q has the cpu limit %v: want at most %d CPUs", c.Name, limit, unit.MaxCPUs)
		}
		d.CPUs += int(limit / unit.CPUs(1))
		d.Containers = append(d.Containers, cpus.ContainerRequest{Name: c.Name, CPUs: int(limit / unit.CPUs(1))})
	}
	if d.CPUs == 0 {
		return "no container has a cpu limit: want a whole number of CPUs"
	}
	d.Policy = cpus.Exclusive
	if request != unit.CPUs(d.CPUs) {
		d.Policy, d.CPU = cpus.Shared, request
	}
	return ""
}

// unwantedSeats returns a fault if a pod has seats in place of n own CPUs only
// because of a request beside those of its limited containers, each of which
// requests all of its limit. If one of these requests less, seats are what the
// pod asks for.
func unwantedSeats(p *corev1.Pod, n int) []Fault {
	for i := range p.Spec.Containers {
		if a := amountsOf(p.Spec.Containers[i].Resources, nativeCPU, nativeMem); a.CPULimit.Known() && a.CPURequest != a.CPULimit {
			return nil
		}
	}
	own := "1 own CPU into a seat"
	if n != 1 {
		own = fmt.Sprintf("%d own CPUs into seats", n)
	}
	return inertFault(AnnotationCPUSetScheduler, "", fmt.Sprintf("%s turns %s, which others may share: leave it out, or write class LSR and request whole CPUs", requestBeside(p, n), own))
}

// requestBeside names the first CPU request of a pod that is no request of a
// limited container, and that makes the request of the pod more than n CPUs.
func requestBeside(p *corev1.Pod, n int) string {
	request := func(r corev1.ResourceRequirements) unit.MilliCPU {
		return amountsOf(r, nativeCPU, nativeMem).CPURequest.Or(0)
	}
	if r := p.Spec.Resources; r != nil && request(*r) > unit.CPUs(n) {
		return "the CPU request of the whole pod (spec.resources)"
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if a := amountsOf(c.Resources, nativeCPU, nativeMem); !a.CPULimit.Known() && a.CPURequest.Or(0) > 0 {
			return fmt.Sprintf("the CPU request of container %.64q", c.Name)
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		switch {
		case sidecar && request(c.Resources) > 0:
			return fmt.Sprintf("the CPU request of sidecar %.64q", c.Name)
		case !sidecar && request(c.Resources) > unit.CPUs(n):
			return fmt.Sprintf("the CPU request of init container %.64q", c.Name)
		}
	}
	return "the CPU overhead of the RuntimeClass"
}

// limitsOf returns the containers, each with its number of CPUs. It returns nil
// if a limit is not a whole number of CPUs, or if the limits do not add up to
// n. Then the CPUs belong to the pod as a whole.
func limitsOf(p *corev1.Pod, n int) []cpus.ContainerRequest {
	var d cpus.PodRequest
	if demandLimits(p, unit.CPUs(n), &d) != "" || d.CPUs != n {
		return nil
	}
	return d.Containers
}

// bindOf sets the fields of the demand that come from resource-spec and
// numa-topology-spec.
func bindOf(d *cpus.PodRequest, spec ResourceSpec, numa NUMASpec) {
	switch spec.RequiredCPUBindPolicy {
	case "FullPCPUs":
		d.Bind = cpus.OnlyWhole
	case "SpreadByPCPUs":
		d.Bind = cpus.OnlySpread
	default:
		switch spec.PreferredCPUBindPolicy {
		case "FullPCPUs":
			d.Bind = cpus.PreferWhole
		case "SpreadByPCPUs":
			d.Bind = cpus.PreferSpread
		}
	}
	switch spec.PreferredCPUExclusivePolicy {
	case "PCPULevel":
		d.Exclusive = cpus.PCPULevel
	case "NUMANodeLevel":
		d.Exclusive = cpus.NUMANodeLevel
	}
	switch numa.NUMATopologyPolicy {
	case "SingleNUMANode":
		d.Within = cpus.NUMA
	case "Restricted":
		d.Fewest = d.Policy == cpus.Exclusive
	}
}

// cpusOf returns the CPUs that a pod demands and those that its scheduler
// chose, for the node's agent. The function Faults reports the faults of both.
func cpusOf(p *corev1.Pod) node.CPUOverride {
	r, asks, _ := DemandOf(p)
	if !asks {
		return node.CPUOverride{}
	}
	r.Memory = 0 // the agent takes it from the workload
	o := node.CPUOverride{Pod: UID(p), PodRequest: r}
	if c, chosen, _ := ChoiceOf(p); chosen {
		c.Containers = nil // the agent divides the CPUs itself
		o.Chosen = &c
	}
	return o
}
