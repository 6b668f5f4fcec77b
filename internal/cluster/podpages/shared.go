package podpages

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
)

// unowned are the CPUs on which a pod runs that asks for none, unless it is
// SYSTEM or another component binds CPUs.
const unowned = "the CPUs that no pod owns"

// ground says on which CPUs of a node a pod runs that asks for none. It returns
// "" if this is not known.
func (c *Cluster) ground(n *nodeState, p *corev1.Pod) string {
	binder := n.Binder()
	switch {
	case !n.reported:
		return ""
	case binder != "":
		return "the CPUs that " + binder + " gives it"
	case kube.IsIgnored(p):
		return "all CPUs of the node, also those that pods own, because Tenon leaves it alone (label " + kube.LabelIgnore + ")"
	case kube.ClassWithDefault(p) == node.System:
		return "all CPUs of the node, also those that pods own, because its class is SYSTEM"
	}
	return unowned
}

// sharedText says on which CPUs of its node a pod runs that asks for none, or ""
// if this is not known. A best-effort pod may also use own CPUs that other pods
// leave idle, but not those of class LSE.
func (c *Cluster) sharedText(n *nodeState, p *corev1.Pod) string {
	text := c.ground(n, p)
	switch {
	case text == "":
		return ""
	case kube.ClassWithDefault(p) == node.BE && text == unowned:
		text = "may run on " + text + c.lentText(n)
	case text == unowned:
		text = "runs on " + text
	default:
		text = "may run on " + text
	}
	if n.IsSilent(c.now) {
		text += ", as its node said " + n.age
	}
	return text
}

// lentText names the pods whose own CPUs best-effort pods of a node may use.
func (c *Cluster) lentText(n *nodeState) string {
	classes := map[node.Class]bool{}
	for uid, a := range c.ledger.View(n.Name).Holds() {
		if a.Policy != cpus.Exclusive {
			continue
		}
		i := slices.IndexFunc(c.pods, func(o corev1.Pod) bool { return uidOf(&o) == uid })
		if i < 0 {
			classes[""] = true
			continue
		}
		classes[kube.ClassWithDefault(&c.pods[i])] = true
	}
	var lenders []string
	if classes[node.LSR] {
		lenders = append(lenders, "LSR pods (unless cpuSuppressLendLSR is false)")
	}
	if classes[node.LS] {
		lenders = append(lenders, "LS pods")
	}
	switch {
	case len(lenders) == 0 && classes[""]:
		return ", and perhaps on own CPUs of pods whose class is not known, while these leave them idle"
	case len(lenders) == 0:
		return ""
	}
	return ", and on own CPUs of " + strings.Join(lenders, " and ") + " while these leave them idle"
}
