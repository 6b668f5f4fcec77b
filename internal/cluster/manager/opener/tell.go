package opener

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/gate"
	"tenon.sh/tenon/internal/decide/share"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// ReasonWaits is the reason of the event of a pod that waits.
	ReasonWaits = "WaitsForBatchRoom"
	// tellAfter is the age from which a pod that waits gets an event.
	tellAfter = time.Minute
	// mostTold is the largest number of events after one decision.
	mostTold = 50
)

// tell creates an event for pods that have waited for a minute, and another one when
// they wait for something else. The namespaces take turns, so that one with thousands of
// pods does not keep the owners of others waiting for theirs.
func (o *Opener) tell(c gate.Case, a gate.Answer, waiting []*corev1.Pod) {
	var due []int
	for i, w := range a.Waits {
		p := waiting[i]
		if w.Code != "" && w.Code != gate.Later && o.said[p.UID] != w.Code && o.Now().Sub(p.CreationTimestamp.Time) >= tellAfter {
			due = append(due, i)
		}
	}
	turns := share.Turns(due, func(i int) string { return waiting[i].Namespace })
	for _, at := range turns[:min(len(turns), mostTold)] {
		i := due[at]
		p, w := waiting[i], a.Waits[i]
		o.said[p.UID] = w.Code
		// Events that differ only in their note become one. The action tells them apart.
		o.Events.Eventf(p, nil, corev1.EventTypeNormal, ReasonWaits, string(w.Code), "%s", words(c, c.Waiting[i], w))
	}
}

// words says why a pod waits.
func words(c gate.Case, p gate.Pod, w gate.Wait) string {
	of := func(a share.Amount) string {
		return fmt.Sprintf("batch-cpu %s and batch-memory %s", node.Readable(a.CPU), node.Readable(a.Memory))
	}
	switch w.Code {
	case gate.NoNode:
		return "no node offers batch resources that its node selector, affinity and tolerations admit"
	case gate.NoRoom:
		return fmt.Sprintf("it asks for %s; of the nodes that admit it, %s comes nearest and has %s free", of(p.Asks), c.Nodes[w.Node].Name, of(w.Free))
	case gate.Assumed:
		return fmt.Sprintf("it asks for %s; there is room, but it is held for %d pods without a node, which ask for %s", of(p.Asks), w.Pods, of(w.Held))
	case gate.Cap:
		return fmt.Sprintf("it asks for %s; namespace %s has %s, and its annotation %s allows no more", of(p.Asks), p.Namespace, of(w.Used), kube.AnnotationBatch)
	case gate.Unread:
		return fmt.Sprintf("the annotation %s of namespace %s has a fault, so it is not known what the namespace may have", kube.AnnotationBatch, p.Namespace)
	}
	return ""
}
