package podpages

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/manifest"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// FindExisting marks the pods of manifests whose names pods of the cluster have.
func (c *Cluster) FindExisting(m *manifest.Set) {
	for i := range m.Wanted {
		if w := &m.Wanted[i]; !w.Template && c.Pod(w.Pod.Namespace, w.Name) != nil {
			w.Exists = true
		}
	}
}

// runningTexts says which of the wanted pods have nodes already. The answers
// count what these take as taken. A pod on a node that does not exist takes
// nothing.
func (c *Cluster) runningTexts(want *manifest.Wanted) (texts []string) {
	var running, lost []*corev1.Pod
	var own unit.CPUSet
	owned := 0
	for i := range c.pods {
		p := &c.pods[i]
		is := !want.Template && p.Name == want.Name || want.Template && stored.IsMadeBy(p, want.Kind, want.Name)
		if !is || p.Namespace != want.Pod.Namespace || p.Spec.NodeName == "" || kube.HasEnded(p) {
			continue
		}
		if c.node(p.Spec.NodeName) == nil {
			lost = append(lost, p)
			continue
		}
		running = append(running, p)
		if a := c.ledger.View(p.Spec.NodeName).Holds()[uidOf(p)]; a.Policy == cpus.Exclusive {
			own, owned = a.CPUs, owned+a.CPUs.Len()
		}
	}
	if len(running) > 0 {
		texts = append(texts, runningText(want, running, own, owned))
	}
	if len(lost) > 0 && c.lacks.Nodes == "" {
		texts = append(texts, lostText(want, lost))
	}
	return texts
}

func runningText(want *manifest.Wanted, running []*corev1.Pod, own unit.CPUSet, owned int) string {
	on, runs, run := "runs on", "runs", "run"
	if slices.ContainsFunc(running, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodPending }) {
		on, runs, run = "is on", "has a node", "have nodes" // and not all of them have started
	}
	who, takes := fmt.Sprintf("%s %s %s already", nameOf(running[0]), on, running[0].Spec.NodeName), "what it requests counts"
	switch {
	case want.Template && len(running) == 1:
		who = fmt.Sprintf("1 pod of %s %s %s already", want.Kind, want.Name, runs)
	case want.Template:
		who, takes = fmt.Sprintf("%d pods of %s %s %s already", len(running), want.Kind, want.Name, run), "what they request counts"
	}
	switch {
	case owned > 0 && len(running) > 1:
		takes = fmt.Sprintf("what they request, with %s of their own, counts", table.Count(owned, "CPU"))
	case owned > 1:
		takes = fmt.Sprintf("its CPUs %v count", own)
	case owned == 1:
		takes = fmt.Sprintf("its CPU %v counts", own)
	}
	more := "more pods"
	if want.Count == 1 && !want.EachNode {
		more = "one more pod"
	}
	return fmt.Sprintf("%s: %s as taken, and the answer is for %s", who, takes, more)
}

// lostText names pods on nodes that do not exist.
func lostText(want *manifest.Wanted, lost []*corev1.Pod) string {
	if len(lost) == 1 {
		return fmt.Sprintf("%s names node %s, which does not exist: it does not run, and what it requests counts nowhere", nameOf(lost[0]), lost[0].Spec.NodeName)
	}
	return fmt.Sprintf("%d pods of %s %s name nodes that do not exist, such as %s: they do not run, and what they request counts nowhere", len(lost), want.Kind, want.Name, lost[0].Spec.NodeName)
}
