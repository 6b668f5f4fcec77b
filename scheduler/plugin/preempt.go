package plugin

import (
	"context"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

// A trial is a node with pods added or removed.
type trial struct {
	base *place.View
	less []place.UID
	more []place.Pod
	view *place.View
}

func (t *trial) look() {
	t.view = t.base
	if len(t.less) > 0 {
		t.view = t.view.Without(t.less...)
	}
	for _, p := range t.more {
		t.view = t.view.With(p, cpus.Choice{})
	}
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// trial returns the trial of a node in a cycle.
func (p *Plugin) trial(state fwk.CycleState, c *cycle, n fwk.NodeInfo) *trial {
	node := n.Node().Name
	t := c.trials[node]
	if t == nil {
		t = &trial{base: p.keeper.view(node)}
		if state.IsPodGroupSchedulingCycle() {
			t.base, _ = p.keeper.viewWithBack(n, c.pod.UID, c.back[node])
		}
		if t.base.Has(c.pod.UID) { // a bind to the node is in doubt
			t.base = t.base.Without(c.pod.UID)
		}
		if c.trials == nil {
			c.trials = map[string]*trial{}
		}
		c.trials[node] = t
	}
	return t
}

// RemovePod removes a pod from the trial of a node, to find out whether a
// preemption of this pod would help.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *corev1.Pod, removed fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	c, uid := cycleOf(state), uidOf(removed.GetPod())
	if c == nil || node.Node() == nil {
		return nil
	}
	if isListed(state, removed) {
		if name := node.Node().Name; len(c.back[name]) > 0 {
			c.back[name] = slices.DeleteFunc(c.back[name], func(p place.Pod) bool { return p.UID == uid })
		}
		return nil
	}
	if kube.IsMirror(removed.GetPod()) {
		return nil // the end of a mirror does not end its static pod
	}
	t := p.trial(state, c, node)
	if i := slices.IndexFunc(t.more, func(m place.Pod) bool { return m.UID == uid }); i >= 0 {
		t.more = slices.Delete(t.more, i, i+1)
	} else if t.base.Has(uid) {
		t.less = append(t.less, uid)
	}
	t.look()
	return nil
}

// AddPod adds a pod to the trial of a node. Either RemovePod has removed this
// pod before, or the pod is nominated for the node.
func (p *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	c, uid := cycleOf(state), uidOf(added.GetPod())
	if c == nil || node.Node() == nil {
		return nil
	}
	if isListed(state, added) {
		if demand, asks := demandOf(stored.InForce(added.GetPod())); asks {
			c.putBack(node.Node().Name, place.Pod{UID: uid, Request: demand})
		}
		return nil
	}
	t := p.trial(state, c, node)
	if i := slices.Index(t.less, uid); i >= 0 {
		t.less = slices.Delete(t.less, i, i+1)
	} else if demand, asks := demandOf(added.GetPod()); asks && !t.base.Has(uid) && !p.keeper.knows(uid, node.Node().Name) {
		t.more = append(t.more, place.Pod{UID: uid, Request: demand})
	}
	t.look()
	return nil
}

// isListed reports whether the list of a node's pods is right about this pod.
// It is right in the cycle of a PodGroup, for pods that have a node. The list
// changes while the scheduler looks for pods to preempt.
func isListed(state fwk.CycleState, p fwk.PodInfo) bool {
	return state.IsPodGroupSchedulingCycle() && p.GetPod().Spec.NodeName != ""
}

// putBack adds a pod to those that a preemption has put back on a node.
func (c *cycle) putBack(node string, p place.Pod) {
	if c.back == nil {
		c.back = map[string][]place.Pod{}
	}
	c.back[node] = append(c.back[node], p)
}

// viewWithoutEnded returns the view of a node without the pods that have ended,
// as the scheduler knows. The scheduler and the ledger learn in no fixed order
// that a pod has ended. Suppose that a pod has preempted others, and that the
// ledger does not know yet that these have ended. Their CPUs would seem taken,
// and the pod would preempt others on another node, too. If the ledger still
// has the ended pods when Reserve runs, the pod waits until the ledger knows of
// their end.
//
// The preemption of a PodGroup removes the pods that it would end from the list
// of the scheduler.
func (k *keeper) viewWithoutEnded(n fwk.NodeInfo) *place.View {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ledger.Without(n.Node().Name, listPods(n))
}

// viewWithBack returns the view of viewWithoutEnded, with pods that a preemption
// of a PodGroup has put back. uid is the member of the group for which the view
// is: what it may hold after an uncertain bind is left out.
//
// The ledger may already know that a pod has ended which the scheduler has put
// back. If its CPUs did not count, the scheduler would find room beside this
// pod, and end another one in its place. If there is no room for such a pod, the
// result contains the reason.
func (k *keeper) viewWithBack(n fwk.NodeInfo, uid place.UID, back []place.Pod) (*place.View, cpus.Code) {
	k.mu.Lock()
	defer k.mu.Unlock()
	node := n.Node().Name
	view := k.ledger.Without(node, listPods(n))
	if view.Has(uid) {
		view = view.Without(uid)
	}
	for _, p := range back {
		if at, known := k.ledger.Node(p.UID); known && at == node || view.Has(p.UID) {
			continue // it holds what the ledger says, see knows
		}
		next := view.With(p, cpus.Choice{})
		if next == view {
			return view, view.Room(&p.Request)
		}
		view = next
	}
	return view, cpus.Fits
}

// knows reports whether the ledger knows a pod on a node. Such a pod holds what
// the view of the node says. This may be nothing, if the node refuses the pod.
func (k *keeper) knows(uid place.UID, node string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, known := k.ledger.Node(uid)
	return known && at == node
}

// listPods returns the pods that the scheduler knows on a node.
func listPods(n fwk.NodeInfo) iter.Seq[place.UID] {
	return func(yield func(place.UID) bool) {
		for _, p := range n.GetPods() {
			if !yield(uidOf(p.GetPod())) {
				return
			}
		}
	}
}
