package plugin

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

// podChanged handles a new or changed pod. The scheduler's informer leaves out
// pods that have ended, so the end of a pod arrives as a deletion. There is one
// exception: an informer knows pods by their names. If it lists the pods again
// and another pod has got the name of an ended one meanwhile, it reports only a
// change from the one pod to the other.
func (k *keeper) podChanged(before, after any) {
	p, ok := after.(*corev1.Pod)
	old, had := before.(*corev1.Pod)
	if !ok {
		return
	}
	if had && old.UID != p.UID {
		k.podDeleted(old)
		had = false
	}
	if p.Spec.NodeName == "" {
		if had || p.Status.NominatedNodeName != "" {
			k.waitingChanged(p)
		}
		return
	}
	if had && sameCPUs(old, p) {
		return
	}
	demand, asks := demandOf(stored.InForce(p))
	var choice cpus.Choice // zero: the node chooses the CPUs in the same way as this scheduler
	if asks {
		choice, _, _ = kube.ChoiceOf(p)
	}
	uid := uidOf(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !asks { // the pod may have demanded CPUs while it waited
		k.removePod(uid, k.ledger.Forgo)
		return
	}
	node, known := k.ledger.Node(uid)
	doubts := k.ledger.Doubts(uid)
	news := k.ledger.Confirm(place.Pod{UID: uid, Request: demand}, p.Spec.NodeName, choice)
	delete(k.failed, p.UID)
	delete(k.nominees, p.UID)
	if !news { // most pods: this scheduler bound the pod as it was reserved
		return
	}
	for _, at := range doubts {
		k.changed(at)
	}
	if known && node != p.Spec.NodeName {
		k.changed(node)
	}
	if known {
		k.changed(p.Spec.NodeName) // the pod may hold fewer CPUs than were reserved
		return
	}
	k.publish(p.Spec.NodeName)
}

// waitingChanged records whether a pod without a node is nominated for a node,
// and for which CPUs it waits now. If these are other CPUs than before, the
// queue of the scheduler tries the pod again by itself (asksForOthers). If no
// node takes the pod then, either, the keeper must wake it for the new CPUs.
func (k *keeper) waitingChanged(p *corev1.Pod) {
	demand, asks := demandOf(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if asks && p.Status.NominatedNodeName != "" {
		k.nominees[p.UID] = true
	} else {
		delete(k.nominees, p.UID)
	}
	w, waits := k.failed[p.UID]
	switch {
	case !waits:
	case asks:
		k.failed[p.UID] = waitingPod{p, demand, w.since}
	default:
		delete(k.failed, p.UID)
	}
}

// sameCPUs reports whether a bound pod has the same CPUs after a change. The
// generation of a pod is the number of changes of its spec. While a resize is
// pending, the status counts, too.
func sameCPUs(old, p *corev1.Pod) bool {
	return old.UID == p.UID && old.Spec.NodeName == p.Spec.NodeName && old.Generation == p.Generation &&
		maps.Equal(old.Annotations, p.Annotations) && maps.Equal(old.Labels, p.Labels) && stored.InForce(old) == old && stored.InForce(p) == p
}

// podDeleted handles the deletion or the end of a pod. A static pod may run on
// after the deletion of its mirror, and the kubelet then makes a new one. So it
// holds its CPUs until a report lacks it.
func (k *keeper) podDeleted(o any) {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if kube.IsMirror(p) {
		k.removePod(uidOf(p), k.ledger.Forgo)
		return
	}
	k.removePod(uidOf(p), k.ledger.RemovePod)
}

// removePod removes a pod from the ledger, by a function of the ledger. The
// caller holds k.mu.
func (k *keeper) removePod(uid place.UID, remove func(place.UID)) {
	delete(k.failed, types.UID(uid))
	delete(k.nominees, types.UID(uid))
	nodes := k.ledger.Doubts(uid)
	if node, known := k.ledger.Node(uid); known {
		nodes = append(nodes, node)
	}
	remove(uid)
	for _, node := range nodes {
		k.changed(node)
		if k.seen[node] == nil && k.ledger.IsUnused(node) {
			k.forget(node)
		}
	}
}

// nodeAdded publishes a node, even if it has no report. A node without a report
// refuses each demand.
func (k *keeper) nodeAdded(o any) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[n.Name] = true
	k.publish(n.Name)
}

// nodeDeleted forgets a node, unless a pod is still bound to the node. If the
// node registers again, it has the same pods.
func (k *keeper) nodeDeleted(o any) {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	if n, ok := o.(*corev1.Node); ok {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.nodes, n.Name)
		k.withoutReport(n.Name)
	}
}

func (k *keeper) reportDeleted(o any) {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	if r, ok := o.(*v1alpha1.NodeReport); ok {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.withoutReport(r.Name)
	}
}

// withoutReport updates the state of a node whose report was removed. The
// caller holds k.mu.
func (k *keeper) withoutReport(node string) {
	delete(k.seen, node)
	if k.ledger.IsUnused(node) {
		k.forget(node)
		return
	}
	k.ledger.CloseNode(node, cpus.NoReport)
	k.publish(node)
}

// reportChanged handles a report. The age of a report is the time since the
// keeper saw it change, because the clocks of the machines differ. In most
// reports, the CPUs have not changed.
func (k *keeper) reportChanged(o any) {
	r, ok := o.(*v1alpha1.NodeReport)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.seen[r.Name]
	if s == nil {
		s = &sighting{sequence: -1}
		k.seen[r.Name] = s
	}
	if s.sequence == r.Status.Sequence && s.run == r.Status.Run {
		return
	}
	reported := r.Status.CPUs
	repeats := s.cpus != nil && reported != nil && !s.stale && equal(reported, s.cpus)
	*s = sighting{sequence: r.Status.Sequence, run: r.Status.Run, changed: k.now(), cpus: reported, moved: s.moved}
	switch {
	case repeats:
		return
	case reported == nil:
		k.ledger.CloseNode(r.Name, cpus.NoReport)
	default:
		report, err := cpureport.Read(reported)
		if err != nil {
			s.cpus = nil
			k.ledger.CloseNode(r.Name, cpus.NoReport)
			k.log.Error(err, "The report of a node cannot be read", "node", r.Name)
			break
		}
		s.moved = k.movedPods(report, s.moved)
		k.ledger.Learn(r.Name, report)
	}
	k.changed(r.Name)
}
