package podpages

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// Asks holds the demand of a pod. The JSON names of all types of answers are
// documented in docs/kubectl-tenon.md, and do not change.
type Asks struct {
	Policy  string `json:"policy,omitempty"`
	CPUs    int    `json:"cpus,omitempty"`
	Request string `json:"request,omitempty"`
	Text    string `json:"text"`
}

func asksOf(d *cpus.PodRequest) Asks {
	if d == nil {
		return Asks{Text: "no CPUs of its own"}
	}
	a := Asks{Policy: d.Policy.String(), CPUs: d.CPUs, Text: asksFor(d)}
	if d.Policy != cpus.Exclusive {
		a.Request = d.CPU.String()
	}
	return a
}

// faultsOf returns the faults of a pod, and what its owner probably did not
// mean. The webhook refuses a pod of class LSR or LSE without a whole number of
// CPUs, but such a pod can be created while the webhook is off.
func faultsOf(p *corev1.Pod) []kube.Fault {
	if kube.IsIgnored(p) {
		return nil
	}
	all := append(kube.Faults(p), admission.Advice(p)...)
	class, request := kube.Class(p), kube.Native(p).CPURequest.Or(0)
	if demandOf(p) == nil && (class == node.LSR || class == node.LSE) && request%unit.CPUs(1) != 0 {
		all = append(all, kube.Fault{Key: kube.LabelQOSClass, Fault: config.Fault{
			Problem: fmt.Sprintf("the pod requests %v in total, so it gets no CPUs of its own: want a whole number such as 2, or class LS", request),
		}})
	}
	return all
}

// asksFor prints a demand.
func asksFor(d *cpus.PodRequest) string {
	text := ""
	switch d.Policy {
	case cpus.Exclusive:
		text = fmt.Sprintf("%s of its own", table.Count(d.CPUs, "CPU"))
	case cpus.Shared:
		text = fmt.Sprintf("%s, shared, for a request of %v", table.Count(d.CPUs, "CPU"), d.CPU)
	default:
		text = fmt.Sprintf("a pool of CPUs for a request of %v", d.CPU)
	}
	switch d.Bind {
	case cpus.OnlyWhole:
		text += ", whole cores only"
	case cpus.PreferWhole:
		text += ", whole cores if possible"
	case cpus.OnlySpread:
		text += ", one of each core only"
	case cpus.PreferSpread:
		text += ", one of each core if possible"
	}
	if d.Within != cpus.Machine {
		text += ", all of " + d.Within.One()
	}
	if d.Fewest {
		text += ", on the fewest NUMA nodes"
	}
	return text
}

// describeOffer prints an offer of CPUs.
func describeOffer(g cpus.Policy, o pick.Offer) string {
	if g != cpus.Exclusive {
		return o.Level.One()
	}
	text := fmt.Sprintf("%s, %s", table.Count(o.Nodes, "NUMA node"), table.Count(o.Caches, "L3 cache"))
	if o.Split > 0 {
		text += fmt.Sprintf(", %d beside others on a core", o.Split)
	}
	return text
}
