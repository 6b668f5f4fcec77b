package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/kube"
	"tenon.sh/tenon/internal/kubelet"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/nri"
)

// newPod is how often it is looked whether the kubelet has told of a pod that
// the runtime already makes.
const newPod = 10 * time.Millisecond

// A starts answers the container runtime, which asks before it starts a
// container. It is the loop's forerunner and writes nothing itself: the pods'
// own cgroups are the loop's, which is woken.
type starts struct {
	pods interface {
		Look()
		Hurry()
		Known() kubelet.Known
	}
}

// nri answers the runtime until ctx ends.
func (c *cluster) nri(ctx context.Context) {
	o := c.nriOptions()
	o.Changed = func(l nri.Link) { c.link.Store(&l) }
	o.Leaves = c.Leaves
	if err := nri.Run(ctx, o); errors.Is(err, nri.ErrReleased) && c.Released != nil {
		c.Released()
	}
}

func (c *cluster) nriOptions() nri.Options {
	return nri.Options{Socket: c.NRI, Values: starts{c.pods}, V1: c.tree.VersionOf("cpu") == 1, Log: c.log}
}

// Sandbox has the kubelet asked for the pod. By the time its image is there and
// its first container is made, the loop has seen to the pod's cgroup.
func (s starts) Sandbox(_ context.Context, p nri.Pod) error {
	if kube.Class(podOf(p)) == node.BE {
		s.pods.Hurry()
	} else {
		s.pods.Look()
	}
	return nil
}

// podOf is what the runtime knows of a pod.
func podOf(p nri.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID), Labels: p.Labels, Annotations: p.Annotations}}
}

// Container goes by the spec of the pod, or before the kubelet has told it by
// what the webhook has written into its annotations. Where that says nothing
// the answer waits for the kubelet.
func (s starts) Container(ctx context.Context, p nri.Pod, name string) (nri.Limits, bool, error) {
	if pod := s.find(p); pod != nil {
		return limits(kube.ContainerBound(pod, name, true))
	}
	known := podOf(p)
	if b, bounded := kube.ContainerBound(known, name, false); bounded {
		return limits(b, true)
	}
	if kube.Class(known) != node.BE {
		return nri.Limits{}, false, nil
	}
	s.pods.Hurry()
	for {
		select {
		case <-ctx.Done():
			return nri.Limits{}, false, ctx.Err()
		case <-time.After(newPod):
		}
		if pod := s.find(p); pod != nil {
			return limits(kube.ContainerBound(pod, name, true))
		}
	}
}

func (s starts) find(p nri.Pod) *corev1.Pod {
	pods := s.pods.Known().Pods
	i := slices.IndexFunc(pods, func(o corev1.Pod) bool { return kube.UID(&o) == p.UID })
	if i < 0 {
		return nil
	}
	return &pods[i]
}

// period is that of the kubelet's quotas.
const period = 100 * time.Millisecond

// limits says a bound in the runtime's words, without the weight: the kubelet
// reads what the runtime was told of it as a request for CPU.
func limits(b kube.Bound, bounded bool) (nri.Limits, bool, error) {
	var l nri.Limits
	if b.CPU {
		quota := int64(-1)
		if b.CPULimit.Known() {
			quota = quotaOf(b.CPULimit, period).Microseconds()
		}
		l.Quota, l.Period = &quota, new(uint64(period.Microseconds()))
	}
	if b.Memory {
		l.Memory = new(int64(b.MemoryLimit.Or(-1)))
	}
	return l, bounded, nil
}
