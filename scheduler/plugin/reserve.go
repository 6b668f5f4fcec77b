package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/cpus"
)

// Reserve chooses the CPUs. If the node has lost them since Filter, it returns
// an error instead of a refusal. The queue of the scheduler tries a failed pod
// again after its backoff. But a refused pod waits for an event, although other
// nodes may already have room for it.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node string) *fwk.Status {
	c := p.cycle(state)
	if c == nil {
		return nil
	}
	var trial fwk.NodeInfo
	if state.IsPodGroupSchedulingCycle() { // the scheduler reserves again before it binds
		info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
		if err != nil {
			return fwk.AsStatus(err)
		}
		trial = info
	}
	contract, why := p.keeper.reserve(c.pod, node, trial)
	if why != cpus.Fits {
		return fwk.AsStatus(fmt.Errorf("node %s lost the CPUs for the pod since it was chosen: %s", node, why))
	}
	c.contract, c.sent = contract, false
	c.nodes, c.rated = nil, nil // the cycle lives until the bind ends
	return nil
}

// Unreserve releases the CPUs. If the answer to a bind was lost, the pod may
// have been bound. Then the pod keeps the CPUs for a while, so that no other
// pod gets them.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) {
	c := cycleOf(state)
	switch {
	case c == nil:
	case c.sent:
		p.keeper.keepDoubtful(pod.UID)
	default:
		p.keeper.unreserve(pod.UID, state.IsPodGroupSchedulingCycle())
	}
}

// Bind binds a pod that demands CPUs. The next plugin binds all other pods. A
// binding contains annotations, which the API server writes into the pod
// together with the name of the node. Therefore a pod never has one without the
// other, and the plugin needs no second write. While the pod waited for its
// volumes, its node may have lost its report, or may have got other CPUs.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	c := p.cycle(state)
	if c == nil {
		return skip
	}
	topology := p.keeper.view(node).Map()
	if topology == nil || topology.Hash() != c.contract.Topology {
		return fwk.AsStatus(fmt.Errorf("node %s lost the CPUs for the pod since it was chosen: its topology is another one now, or is unknown", node))
	}
	words := kube.ContractAnnotations(pod, topology, c.contract)
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: words},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	c.sent = true
	if err := p.bind(ctx, binding); err != nil {
		c.sent = !isRefused(err)
		return fwk.AsStatus(err)
	}
	return nil
}

func (p *Plugin) bind(ctx context.Context, b *corev1.Binding) error {
	if through := p.handle.APICacher(); through != nil {
		done, err := through.BindPod(b)
		if err != nil {
			return err
		}
		return through.WaitOnFinish(ctx, done)
	}
	return p.handle.ClientSet().CoreV1().Pods(b.Namespace).Bind(ctx, b, metav1.CreateOptions{})
}

// isRefused reports whether the API server said that it did not bind the pod.
// This is not known after a timeout, a broken connection or a server error.
func isRefused(err error) bool {
	for _, is := range []func(error) bool{
		apierrors.IsNotFound, apierrors.IsConflict, apierrors.IsAlreadyExists, apierrors.IsInvalid, apierrors.IsBadRequest, apierrors.IsForbidden,
		apierrors.IsUnauthorized, apierrors.IsTooManyRequests, apierrors.IsMethodNotSupported, apierrors.IsGone, apierrors.IsRequestEntityTooLargeError,
	} {
		if is(err) {
			return true
		}
	}
	return false
}
