package survey

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/decide/place"
)

// Fit places pods one after the other, and prints what each pod would get. The
// webhook changes each pod first. Fit prefers the node with the best CPUs, and
// then the node with fewer requests, like a scheduler. Each placed pod takes
// its resources from the cluster for good. Fit returns true if all pods find a
// place.
func (c *Cluster) Fit(wanted []Wanted, by Webhook) (string, bool) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POD\tASKS FOR\tNODE\tCPUS\tWHERE, OR WHY NOT")
	fits, total := 0, 0
	var faults, changed []string
	var late []waiter
	for _, want := range wanted {
		as, profiles, wrong := by.admit(&want.Pod)
		want.Pod = *as
		if profiles != "" {
			changed = append(changed, fmt.Sprintf("%s: as ClusterColocationProfile %s makes it", want.Name, profiles))
		}
		for _, f := range wrong {
			faults = append(faults, want.Name+": "+f)
		}
		pods := c.expand(want)
		for i, p := range pods {
			total++
			if p.UID = types.UID(fmt.Sprintf("fit-%d", total)); i == 0 {
				for _, f := range kube.Faults(p) {
					faults = append(faults, fmt.Sprintf("%s: %v", want.Name, f))
				}
			}
			switch why := c.fit(w, p); {
			case why == "":
				fits++
			case len(late) > 0 && late[len(late)-1].why == why:
				late[len(late)-1].pods += ", " + nameOf(p)
			default:
				late = append(late, waiter{nameOf(p), why})
			}
		}
	}
	w.Flush() // writes to memory and cannot fail
	for _, l := range late {
		fmt.Fprintf(&b, "\n%s would wait:\n%s", l.pods, l.why)
	}
	for _, text := range changed {
		fmt.Fprintln(&b, text)
	}
	for _, f := range faults {
		fmt.Fprintf(&b, "not as written: %s\n", f)
	}
	fmt.Fprintf(&b, "\n%d of %s would find a place now.\n%s\n", fits, plural(total, "pod"), uncheckedText)
	for _, text := range by.Unread {
		fmt.Fprintf(&b, "Not looked at: %s.\n", text)
	}
	return b.String(), fits == total
}

// A waiter names pods that find no place for the same reasons (why).
type waiter struct{ pods, why string }

// expand returns all pods of a workload.
func (c *Cluster) expand(want Wanted) []*corev1.Pod {
	var pods []*corev1.Pod
	if want.EachNode {
		for _, n := range c.nodes {
			p := want.Pod.DeepCopy()
			p.Name, p.Spec.NodeName = want.Name+" on "+n.Name, n.Name
			// The controller of DaemonSets adds this toleration.
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
			if n.exclusion(p) == "" {
				pods = append(pods, p)
			}
		}
		return pods
	}
	for i := range want.Count {
		p := want.Pod.DeepCopy()
		p.Name = want.Name
		if want.Count > 1 {
			p.Name = fmt.Sprintf("%s %d", want.Name, i+1)
		}
		pods = append(pods, p)
	}
	return pods
}

// fit places one pod, and prints a line for it. It returns why the pod finds no
// place, or "".
func (c *Cluster) fit(w *tabwriter.Writer, p *corev1.Pod) string {
	demand := demandOf(p)
	answers := c.askAll(p, demand)
	fmt.Fprintf(w, "%s\t%s\t", nameOf(p), asksFor(demand))
	if len(answers) == 0 || len(answers[0].why) > 0 {
		fmt.Fprintln(w, "-\t-\tno")
		return countReasons(answers)
	}
	best := answers[0]
	best.node.take(p)
	if demand == nil {
		fmt.Fprintf(w, "%s\t-\tthe CPUs that no pod owns\n", best.node.Name)
		return ""
	}
	contract, why := c.ledger.Reserve(place.Pod{UID: place.UID(p.UID), Demand: *demand}, best.node.Name)
	if why != pick.Fits { // cannot happen: the pod has just fitted
		fmt.Fprintln(w, "-\t-\tno")
		return "  " + string(why) + "\n"
	}
	fmt.Fprintf(w, "%s\t%v\t%s\n", best.node.Name, contract.CPUs, describeOffer(demand, best.offer))
	return ""
}

// countReasons prints each reason why nodes do not take a pod, with the number
// of these nodes.
func countReasons(answers []answer) string {
	if len(answers) == 0 {
		return "  the cluster has no node\n"
	}
	count := map[string]int{}
	for _, a := range answers {
		count[strings.Join(a.why, "; ")]++
	}
	reasons := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b))
	})
	var b strings.Builder
	for _, why := range reasons {
		fmt.Fprintf(&b, "  %s: %s\n", plural(count[why], "node"), why)
	}
	return b.String()
}
