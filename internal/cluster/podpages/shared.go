package podpages

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/node"
)

// sharedText says on which CPUs of its node a pod runs that asks for none. A
// best-effort pod may also use own CPUs that other pods leave idle, but not
// those of class LSE.
func (c *Cluster) sharedText(p *corev1.Pod) string {
	const shared = "the CPUs that no pod owns"
	if kube.ClassWithDefault(p) != node.BE {
		return "runs on " + shared
	}
	classes := map[node.Class]bool{}
	for _, h := range c.ledger.View(p.Spec.NodeName).Holds() {
		i := slices.IndexFunc(c.pods, func(o corev1.Pod) bool { return uidOf(&o) == h.UID })
		if i >= 0 && h.Hold.Grade == pick.Own {
			classes[kube.ClassWithDefault(&c.pods[i])] = true
		}
	}
	var lenders []string
	if classes[node.LSR] {
		lenders = append(lenders, "LSR pods (unless cpuSuppressLendLSR is false)")
	}
	if classes[node.LS] {
		lenders = append(lenders, "LS pods")
	}
	if len(lenders) == 0 {
		return "may run on " + shared
	}
	return "may run on " + shared + ", and on own CPUs of " + strings.Join(lenders, " and ") + " while these leave them idle"
}
