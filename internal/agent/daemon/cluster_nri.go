package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/cluster/starting"
	"tenon.sh/tenon/internal/decide/limit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// newPod is the interval at which Container checks whether the kubelet lists a
// pod that the runtime is creating.
const newPod = 10 * time.Millisecond

// A nriResolver is the NRI resolver: it gives the container runtime the limits
// of a container before its start. It writes no knob; it wakes the loop, which
// writes the cgroups of pods.
type nriResolver struct {
	pods interface {
		Look()
		Hurry()
		Known() kubelet.Known
	}
	// starting are the containers that wait for a tick of the loop before their
	// start; nil: there is no loop.
	starting *starting.Containers
}

// nri serves the runtime until ctx ends.
func (c *cluster) nri(ctx context.Context) {
	o := c.nriOptions()
	o.Changed = func(l nri.Link) { c.link.Store(&l) }
	o.Leaves = c.Leaves
	if err := nri.Run(ctx, o); errors.Is(err, nri.ErrReleased) && c.Released != nil {
		c.Released()
	}
}

func (c *cluster) nriOptions() nri.Options {
	return nri.Options{Socket: c.NRI, Values: nriResolver{c.pods, c.starting}, V1: c.tree.VersionOf("cpu") == 1, Log: c.log}
}

// Sandbox lets the kubelet client query the pod. The loop configures the pod's
// cgroup before the image is pulled and the first container is created.
func (s nriResolver) Sandbox(_ context.Context, p nri.Pod) error {
	if kube.Class(podOf(p)) == node.BE {
		s.pods.Hurry()
	} else {
		s.pods.Look()
	}
	return nil
}

// podOf returns the pod as the runtime describes it.
func podOf(p nri.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID), Labels: p.Labels, Annotations: p.Annotations}}
}

// Container uses the pod's spec. If the kubelet does not list the pod yet, it
// uses the webhook's annotations. Without annotations it waits for the kubelet.
func (s nriResolver) Container(ctx context.Context, p nri.Pod, name string) (nri.Limits, bool, error) {
	if pod := s.find(p); pod != nil {
		return limits(kube.Starting(pod, name, true))
	}
	known := podOf(p)
	if w, c, ours := kube.Starting(known, name, false); ours {
		return limits(w, c, true)
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
			return limits(kube.Starting(pod, name, true))
		}
	}
}

// Starting lets the loop write the cgroup of a container of best-effort work
// before the first instruction runs there: what NRI cannot set, such as a quota
// on cgroup v1.
func (s nriResolver) Starting(ctx context.Context, p nri.Pod, c nri.Created) error {
	if s.starting != nil && kube.Class(podOf(p)) == node.BE {
		s.starting.Await(ctx, p.UID, c.Name, c.ID)
	}
	return nil
}

func (s nriResolver) find(p nri.Pod) *corev1.Pod {
	pods := s.pods.Known().Pods
	i := slices.IndexFunc(pods, func(o corev1.Pod) bool { return kube.UID(&o) == p.UID })
	if i < 0 {
		return nil
	}
	return &pods[i]
}

// limits converts the limits of decide/limit to NRI. It omits the weight,
// because the kubelet would read it as a request for CPU. The runtime and the
// kubelet write -1 for no limit.
func limits(w node.Workload, c node.Container, ours bool) (nri.Limits, bool, error) {
	var l nri.Limits
	if v, cpu := limit.CPU(w, c); cpu && ours {
		quota := int64(-1)
		if v.Quota != node.NoQuota {
			quota = v.Quota.Microseconds()
		}
		l.Quota, l.Period = &quota, new(uint64(v.Period.Microseconds()))
	}
	if most, memory := limit.Memory(w, c); memory && ours {
		l.Memory = new(int64(-1))
		if most != unit.MaxBytes {
			*l.Memory = int64(most)
		}
	}
	return l, ours, nil
}
