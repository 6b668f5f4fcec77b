package podpages

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/unit"
)

// AddPod adds a pod that exists, as its author could create it again.
func (m *Manifests) AddPod(p *corev1.Pod) {
	m.Wanted = append(m.Wanted, Wanted{Name: p.Name, Pod: *stored.Again(p), Count: 1, Exists: true})
}

// FindExisting marks the pods of manifests whose names pods of the cluster have.
func (c *Cluster) FindExisting(m *Manifests) {
	for i := range m.Wanted {
		if w := &m.Wanted[i]; !w.Template && c.Pod(w.Pod.Namespace, w.Name) != nil {
			w.Exists = true
		}
	}
}

// runningText says which of the wanted pods run already. The answers count what
// these take as taken. It returns "" if none of them runs.
func (c *Cluster) runningText(want *Wanted) string {
	var running []*corev1.Pod
	var own unit.CPUSet
	owned := 0
	for i := range c.pods {
		p := &c.pods[i]
		is := !want.Template && p.Name == want.Name || want.Template && stored.IsMadeBy(p, want.Kind, want.Name)
		if !is || p.Namespace != want.Pod.Namespace || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		running = append(running, p)
		for _, h := range c.ledger.View(p.Spec.NodeName).Holds() {
			if h.UID == uidOf(p) && h.Hold.Grade == pick.Own {
				own, owned = h.Hold.CPUs, owned+h.Hold.CPUs.Len()
			}
		}
	}
	if len(running) == 0 {
		return ""
	}
	who, takes := fmt.Sprintf("%s runs on %s", nameOf(running[0]), running[0].Spec.NodeName), "what it requests counts"
	switch {
	case want.Template && len(running) == 1:
		who = fmt.Sprintf("1 pod of %s %s runs", want.Kind, want.Name)
	case want.Template:
		who, takes = fmt.Sprintf("%d pods of %s %s run", len(running), want.Kind, want.Name), "what they request counts"
	}
	switch {
	case owned > 0 && len(running) > 1:
		takes = fmt.Sprintf("what they request, with %s of their own, counts", cpus(owned))
	case owned > 1:
		takes = fmt.Sprintf("its CPUs %v count", own)
	case owned == 1:
		takes = fmt.Sprintf("its CPU %v counts", own)
	}
	more := "more pods"
	if want.Count == 1 && !want.EachNode {
		more = "one more pod"
	}
	return fmt.Sprintf("%s already: %s as taken, and the answer is for %s", who, takes, more)
}
