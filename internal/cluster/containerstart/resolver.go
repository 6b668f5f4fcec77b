package containerstart

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
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// newPod is the time between two searches for a pod that the runtime already
// creates but the kubelet does not list yet.
const newPod = 10 * time.Millisecond

// A Resolver is the NRI resolver. It gives the container runtime the limits of
// a container before the container starts. It writes no knob itself, but wakes
// the loop, which writes the cgroups of pods.
type Resolver struct {
	Pods Pods
	// Containers are the containers whose start waits for a tick of the loop. It
	// is nil if there is no loop.
	Containers *Containers
}

// Pods is the list of the pods of the node. kubelet.Source implements it.
type Pods interface {
	Look()
	Hurry()
	Known() kubelet.Known
}

// Sandbox requests a new list of pods from the kubelet. So the loop can set up
// the cgroup of a pod while the images are pulled, before the first container
// exists.
func (s Resolver) Sandbox(_ context.Context, p nri.Pod) error {
	if known := podOf(p); isBestEffort(known) || mayDemandCPUs(known) {
		s.Pods.Hurry()
	} else {
		s.Pods.Look()
	}
	return nil
}

// podOf makes a pod from the fields that the runtime knows.
func podOf(p nri.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID), Labels: p.Labels, Annotations: p.Annotations}}
}

// Container returns the limits of a container from the spec of its pod. If the
// kubelet does not list the pod yet, the limits come from the annotations of
// the webhook. If there are none, Container waits for the kubelet.
func (s Resolver) Container(ctx context.Context, p nri.Pod, name string) (nri.Limits, bool, error) {
	if pod := s.find(p); pod != nil {
		return limits(kube.Starting(pod, name, true))
	}
	known := podOf(p)
	if w, c, ours := kube.Starting(known, name, false); ours {
		return limits(w, c, true)
	}
	if !isBestEffort(known) {
		return nri.Limits{}, false, nil
	}
	ctx, ended := s.Containers.within(ctx, bestEffortAllowance)
	defer ended()
	pod, err := s.await(ctx, p)
	if err != nil {
		return nri.Limits{}, false, err
	}
	return limits(kube.Starting(pod, name, true))
}

// await waits until the kubelet lists a pod.
func (s Resolver) await(ctx context.Context, p nri.Pod) (*corev1.Pod, error) {
	if pod := s.find(p); pod != nil {
		return pod, nil
	}
	s.Pods.Hurry()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(newPod):
		}
		if pod := s.find(p); pod != nil {
			return pod, nil
		}
	}
}

// Starting waits until the loop has written the cgroups of a container, before
// the container runs its first instruction. For best-effort work, the loop
// writes what NRI cannot set, such as a quota on cgroup v1. For a pod that
// demands CPUs, the loop writes the cpusets. They are not set through NRI: the
// runtime would write them again later, when the pod may have other CPUs. If
// containers have waited too long already (see allowance), Starting wakes the
// loop and does not wait for it.
func (s Resolver) Starting(ctx context.Context, p nri.Pod, c nri.Created) error {
	if s.Containers == nil {
		return nil
	}
	known := podOf(p)
	if isBestEffort(known) {
		ctx, ended := s.Containers.within(ctx, bestEffortAllowance)
		defer ended()
		s.Containers.Await(ctx, p.UID, c.Name, c.ID)
		return nil
	}
	if !mayDemandCPUs(known) {
		return nil
	}
	ctx, ended := s.Containers.within(ctx, demandAllowance)
	defer ended()
	pod, err := s.await(ctx, p)
	demands := errors.Is(err, errSpent) // the loop finds out when the kubelet lists the pod
	if err == nil {
		_, demands, _ = kube.DemandOf(pod)
	}
	if demands {
		s.Containers.Await(ctx, p.UID, c.Name, c.ID)
	}
	return err
}

func (s Resolver) find(p nri.Pod) *corev1.Pod {
	pods := s.Pods.Known().Pods
	i := slices.IndexFunc(pods, func(o corev1.Pod) bool { return kube.UID(&o) == p.UID })
	if i < 0 {
		return nil
	}
	return &pods[i]
}

// limits converts the limits of a container for NRI. It omits the weight,
// because the kubelet would read it as a CPU request. The runtime and
// the kubelet read -1 as no limit.
func limits(w node.Workload, c node.Container, ours bool) (nri.Limits, bool, error) {
	var l nri.Limits
	if v, cpu := facts.CPULimit(&w, &c); cpu && ours {
		quota := int64(-1)
		if v.Quota != node.NoQuota {
			quota = v.Quota.Microseconds()
		}
		l.Quota, l.Period = &quota, new(uint64(v.Period.Microseconds()))
	}
	if most, memory := facts.MemoryLimit(&w, &c); memory && ours {
		l.Memory = new(int64(-1))
		if most != unit.MaxBytes {
			*l.Memory = int64(most)
		}
	}
	return l, ours, nil
}

// isBestEffort reports whether a pod is BE, and Tenon does not leave it alone.
func isBestEffort(p *corev1.Pod) bool { return kube.Class(p) == node.BE && !kube.IsIgnored(p) }

// mayDemandCPUs reports whether a pod may demand CPUs. It reads only labels and
// annotations, the only properties of a pod that the container runtime knows.
func mayDemandCPUs(p *corev1.Pod) bool {
	class := kube.Class(p)
	if kube.IsIgnored(p) {
		return false
	}
	if class == node.LSE || class == node.LSR {
		return true
	}
	if class != "" && !class.Sensitive() {
		return false
	}
	for _, key := range []string{kube.AnnotationCPUSetScheduler, kube.AnnotationResourceSpec, kube.AnnotationNUMASpec, kube.AnnotationACKNUMASpec} {
		if p.Annotations[key] != "" {
			return true
		}
	}
	return false
}
