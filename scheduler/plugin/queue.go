package plugin

import (
	"cmp"
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
)

// A waitingPod is a pod that waits for free CPUs. The keeper counts how often CPUs
// of a node became free. since is that count when the pod began to wait.
type waitingPod struct {
	pod    *corev1.Pod
	demand cpus.PodRequest
	since  uint64
}

// addWaiting adds a pod to the waiting pods, and counts the reason why nodes
// refused the pod. It returns the nodes on which the pod itself holds CPUs
// after an uncertain bind.
func (k *keeper) addWaiting(p *corev1.Pod, d cpus.PodRequest, why cpus.Code) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counts.refused[why]++
	k.failed[p.UID] = waitingPod{p, d, k.turn}
	return k.ledger.Doubts(place.UID(p.UID))
}

// headStart is the time that the handlers of the scheduler get to handle an
// event that the keeper has handled. They run at the same time and usually need
// less than a millisecond.
const headStart = 20 * time.Millisecond

// wake activates waiting pods that fit on a node after a change of the ledger.
// It is needed because the queue of the scheduler and the ledger receive an
// event of the API server in no fixed order. If only the queue woke a pod, the
// plugin could judge the pod by the old ledger, and the pod would wait for
// minutes (kubernetes/kubernetes#93552).
//
// wake waits for headStart first. The ledger may be the first to learn that a
// pod has ended. If the scheduler still lists the ended pod when it tries the
// waiting pod again, it may end further pods.
func (k *keeper) wake(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.waker:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(headStart):
		}
		if pods := k.fittingPods(); len(pods) > 0 {
			k.queue.Activate(k.log, pods)
		}
	}
}

// fittingPods returns the waiting pods that fit on one of the freed nodes. CPUs
// of that node must have become free after the pod began to wait.
func (k *keeper) fittingPods() map[string]*corev1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found map[string]*corev1.Pod
	for node := range k.freed {
		view, last := k.view(node), k.rooms[node]
		for _, w := range k.failed {
			if last <= w.since || view.Room(&w.demand) != cpus.Fits {
				continue
			}
			if found == nil {
				found = map[string]*corev1.Pod{}
			}
			found[w.pod.Namespace+"/"+w.pod.Name] = w.pod
		}
	}
	clear(k.freed)
	return found
}

// EventsToRegister implements fwk.EnqueueExtensions. It does not register the
// reports of nodes, because the keeper already watches them: after a report has
// changed the ledger, wake activates the pods that wait for CPUs.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.hasRoomAfterPod},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeAllocatable | fwk.UpdateNodeAnnotation}, QueueingHintFn: p.hasRoomAfterNode},
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}, QueueingHintFn: p.asksForOthers},
	}, nil
}

// hasRoomAfterPod returns whether a waiting pod has room after another pod has
// ended, or is no longer nominated for a node: the scheduler reports both as the
// end of a pod, and a nominated pod has no node. hasRoomAfterPod works even if
// the ledger has not seen the end yet.
func (p *Plugin) hasRoomAfterPod(_ klog.Logger, waiting *corev1.Pod, before, _ any) (fwk.QueueingHint, error) {
	if gone, is := before.(cache.DeletedFinalStateUnknown); is {
		before = gone.Obj
	}
	ended, ok := before.(*corev1.Pod)
	demand, asks := demandOf(waiting)
	if !ok || !asks {
		return fwk.Queue, nil
	}
	view := p.keeper.view(cmp.Or(ended.Spec.NodeName, ended.Status.NominatedNodeName))
	if uid := uidOf(ended); view.Has(uid) && !kube.IsMirror(ended) {
		view = view.Without(uid)
	}
	return hint(view, demand), nil
}

// hasRoomAfterNode returns whether a changed node has room for a waiting pod.
func (p *Plugin) hasRoomAfterNode(_ klog.Logger, waiting *corev1.Pod, _, after any) (fwk.QueueingHint, error) {
	node, ok := after.(*corev1.Node)
	demand, asks := demandOf(waiting)
	if !ok || !asks {
		return fwk.Queue, nil
	}
	return hint(p.keeper.view(node.Name), demand), nil
}

// asksForOthers returns whether a waiting pod asks for other CPUs after a change
// of the pod itself, such as of its annotations.
func (*Plugin) asksForOthers(_ klog.Logger, _ *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	old, was := before.(*corev1.Pod)
	now, is := after.(*corev1.Pod)
	if !was || !is {
		return fwk.Queue, nil
	}
	had, asked := demandOf(old)
	has, asks := demandOf(now)
	if asked == asks && had.Request == has.Request { // the answers of nodes depend on no other part
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

func hint(view *place.View, d cpus.PodRequest) fwk.QueueingHint {
	if view.Room(&d) == cpus.Fits {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

// SignPod returns a signature of the CPUs that the pod demands. With it, the
// scheduler may schedule equal pods in a batch. This is possible because the
// answer of a node does not depend on other nodes.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	demand, asks := demandOf(pod)
	if !asks {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: "tenon.sh/cpus", Value: signature(&demand.Request)}}, nil
}

// signature returns the same text only for equal requests. It ignores other parts
// of the pod's request, because the answers of nodes do not depend on them. It is one
// string, because the framework encodes it as JSON, which is slow for a struct.
func signature(c *cpus.Request) string {
	var room [64]byte
	b := room[:0]
	for _, n := range [...]int64{int64(c.Policy), int64(c.CPUs), int64(c.CPU), int64(c.Bind), int64(c.Within), int64(c.Exclusive)} {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	return string(strconv.AppendBool(b, c.Fewest))
}
