package plugin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/decide/pick"
	"tenon.sh/tenon/internal/decide/place"
)

// waits puts a pod among those that a node did not take, for a reason.
func (k *keeper) waits(p *corev1.Pod, d place.Demand, why place.Reason) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counts.refused[why]++
	k.failed[p.UID], k.wants[p.UID] = p, d
}

// wake activates the waiting pods for which a node has got room. It does so
// after the ledger has changed: an event of the API server reaches the queue of
// the scheduler and the ledger in no fixed order, and a pod that the queue
// wakes first would be judged by the old ledger and wait for minutes
// (kubernetes/kubernetes#93552).
func (k *keeper) wake(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.waker:
		}
		if pods := k.fitting(); len(pods) > 0 {
			k.queue.Activate(k.log, pods)
		}
	}
}

// fitting returns the waiting pods for which one of the freed nodes has room.
func (k *keeper) fitting() map[string]*corev1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found map[string]*corev1.Pod
	for node := range k.freed {
		view := k.view(node)
		for uid, p := range k.failed {
			d := k.wants[uid]
			if view.Room(&d) != pick.Fits {
				continue
			}
			if found == nil {
				found = map[string]*corev1.Pod{}
			}
			found[p.Namespace+"/"+p.Name] = p
		}
	}
	clear(k.freed)
	return found
}

// EventsToRegister implements fwk.EnqueueExtensions. Reports of nodes are not
// among the events: the scheduler would follow them a second time, without
// their type. Pods that wait for CPUs are woken by wake.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPod},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeAllocatable | fwk.UpdateNodeAnnotation}, QueueingHintFn: p.afterNode},
	}, nil
}

// afterPod says whether the end of a pod makes room for a waiting one. It does
// not depend on whether the ledger has seen that end.
func (p *Plugin) afterPod(_ klog.Logger, waiting *corev1.Pod, before, _ any) (fwk.QueueingHint, error) {
	if gone, is := before.(cache.DeletedFinalStateUnknown); is {
		before = gone.Obj
	}
	ended, ok := before.(*corev1.Pod)
	demand, asks := demandOf(waiting)
	if !ok || !asks {
		return fwk.Queue, nil
	}
	view := p.keeper.view(ended.Spec.NodeName)
	if uid := place.UID(ended.UID); view.Has(uid) {
		view = view.Without(uid)
	}
	return hint(view, demand), nil
}

// afterNode says whether a changed node has room for a waiting pod.
func (p *Plugin) afterNode(_ klog.Logger, waiting *corev1.Pod, _, after any) (fwk.QueueingHint, error) {
	node, ok := after.(*corev1.Node)
	demand, asks := demandOf(waiting)
	if !ok || !asks {
		return fwk.Queue, nil
	}
	return hint(p.keeper.view(node.Name), demand), nil
}

func hint(view *place.View, d place.Demand) fwk.QueueingHint {
	if view.Room(&d) == pick.Fits {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

// SignPod signs what the pod asks of the CPUs of a node, so that the scheduler
// may schedule equal pods in a batch. What a node answers depends on that node
// alone.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	demand, asks := demandOf(pod)
	if !asks {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: "tenon.sh/cpus", Value: demand}}, nil
}
