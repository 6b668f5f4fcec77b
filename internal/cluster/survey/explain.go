package survey

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/decide/place"
	"tenon.sh/tenon/internal/model/unit"
)

// ExplainPod prints which CPUs a pod has, and who chose them. For a pod without
// a node, it prints why each node does not take the pod. It returns false if
// the pod does not exist.
func (c *Cluster) ExplainPod(namespace, name string) (string, bool) {
	i := slices.IndexFunc(c.pods, func(p corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return "", false
	}
	p := &c.pods[i]
	demand := demandOf(p)
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks for %s.\n", nameOf(p), asksFor(demand))
	for _, f := range kube.Faults(p) {
		fmt.Fprintf(&b, "  not as written: %v\n", f)
	}
	switch {
	case p.Spec.NodeName == "":
		c.printAnswers(&b, p, demand)
	case demand == nil:
		fmt.Fprintf(&b, "It is on %s and runs on the CPUs that no pod owns.\n", p.Spec.NodeName)
	default:
		c.printPlacement(&b, p, demand)
	}
	return b.String(), true
}

// printAnswers prints what each node answers to a pod that has no node yet.
func (c *Cluster) printAnswers(b *strings.Builder, p *corev1.Pod, demand *place.Demand) {
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse && cond.Message != "" {
			fmt.Fprintf(b, "Its scheduler says: %s\n", cond.Message)
		}
	}
	answers := c.askAll(p, demand)
	fits := 0
	for _, a := range answers {
		if len(a.why) == 0 {
			fits++
		}
	}
	fmt.Fprintf(b, "It has no node; %d of %s would take it now.\n\n", fits, plural(len(answers), "node"))
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tOPEN\tFITS\tRATING\tCPUS\tWHERE, OR WHY NOT")
	for _, a := range answers {
		fmt.Fprintf(w, "%s\t%s\t", a.node.Name, c.openOf(a.node))
		switch {
		case len(a.why) > 0:
			fmt.Fprintf(w, "no\t-\t-\t%s\n", strings.Join(c.withNumbers(a, demand), "; "))
		case demand == nil:
			fmt.Fprintf(w, "yes\t-\t-\tit asks for no CPUs of its own\n")
		default:
			fmt.Fprintf(w, "yes\t%d\t%v\t%s\n", a.worth, a.offer.CPUs, describeOffer(demand, a.offer))
		}
	}
	w.Flush() // writes to memory and cannot fail
	fmt.Fprintf(b, "\n%s\n", uncheckedText)
}

// withNumbers returns the reasons of a node. If the CPUs are one of them, this
// reason has the numbers of the node and the names of the pods that need its
// CPUs. Fit counts the nodes by the reasons without numbers.
func (c *Cluster) withNumbers(a answer, demand *place.Demand) []string {
	if demand == nil {
		return a.why
	}
	why := c.ledger.View(a.node.Name).Explain(demand, func(uid place.UID) string {
		i := slices.IndexFunc(c.pods, func(p corev1.Pod) bool { return place.UID(p.UID) == uid })
		if i < 0 {
			return string(uid)
		}
		return nameOf(&c.pods[i])
	})
	if why == "" {
		return a.why
	}
	return append(slices.Clone(a.why[:len(a.why)-1]), why) // ask adds the reason of the CPUs last
}

// uncheckedText names the conditions that the answers of the nodes ignore.
const uncheckedText = "Looked at: CPUs, requests, taints, node selectors and required node affinity. Not looked at: pod affinity,\ntopology spread, volumes and host ports. A rating from 0 to 100 is that of the CPUs alone."

// openOf prints how many CPUs of a node no pod owns.
func (c *Cluster) openOf(n *nodeState) string {
	view := c.ledger.View(n.Name)
	if view.Map() == nil {
		return "-"
	}
	return fmt.Sprintf("%d of %d", view.Open().Len(), view.Map().Len())
}

// printPlacement prints the CPUs that a pod holds on its node.
func (c *Cluster) printPlacement(b *strings.Builder, p *corev1.Pod, demand *place.Demand) {
	name := p.Spec.NodeName
	n := c.node(name)
	if n == nil || !n.reported {
		fmt.Fprintf(b, "It is on %s: %s.\n", name, place.NoReport)
		return
	}
	contract, chosen, _ := kube.ContractOf(p)
	facts := n.Report.Status.CPUs
	uid := string(p.UID)
	if i := slices.IndexFunc(facts.Refused, func(r v1alpha1.RefusedCPUs) bool { return r.UID == uid }); i >= 0 {
		fmt.Fprintf(b, "It is on %s and has no CPUs of its own there: %s.\n", name, facts.Refused[i].Why)
		return
	}
	i := slices.IndexFunc(facts.Held, func(h v1alpha1.HeldCPUs) bool { return h.UID == uid })
	if i < 0 {
		if chosen {
			fmt.Fprintf(b, "It is on %s. Its scheduler chose the CPUs %v; the node has not reported the pod yet.\n", name, contract.CPUs)
		} else {
			fmt.Fprintf(b, "It is on %s. No scheduler chose its CPUs, and the node has not reported the pod yet.\n", name)
		}
		return
	}
	held := facts.Held[i]
	m := c.ledger.View(name).Map()
	set, home := setOf(held.CPUs), setOf(held.Home)
	fmt.Fprintf(b, "It has %s (%v) of %s", cpus(set.Len()), set, name)
	switch grade, _ := pick.ParseGrade(held.Grade); grade {
	case pick.Own:
		o := m.Judge(set)
		fmt.Fprintf(b, " for itself: %s.\n", describeOffer(&place.Demand{Claim: pick.Claim{Grade: pick.Own}}, o))
	case pick.Seated:
		fmt.Fprintf(b, " as seats, in one %v (%v).\n", m.LevelOf(home), home)
	default:
		fmt.Fprintf(b, ", the open ones of one %v (%v).\n", m.LevelOf(home), home)
	}
	fmt.Fprintf(b, "%s\n", author(held, contract, chosen, set))
	fmt.Fprintf(b, "The node said so %s. kubectl tenon map %s shows its CPUs.\n", n.age, name)
}

// author describes who chose the CPUs that a pod holds.
func author(h v1alpha1.HeldCPUs, c place.Contract, chosen bool, set unit.CPUSet) string {
	switch {
	case h.By == "scheduler" && chosen && c.CPUs != set && c.Grade != pick.Pooled:
		return fmt.Sprintf("Its scheduler chose the CPUs %v; the node has moved it since.", c.CPUs)
	case h.By == "scheduler":
		return "Its scheduler chose them."
	case h.Why != "":
		return "The node chose them: " + h.Why + "."
	}
	return "The node chose them."
}

// setOf parses a set of CPUs from a report. It ignores the error, because New
// has already parsed the report.
func setOf(text string) unit.CPUSet {
	set, _ := unit.ParseCPUSet(text)
	return set
}
