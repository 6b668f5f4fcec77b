package kubelet

import (
	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/stored"
)

// Slim removes all fields that the agent does not read from a pod. About 1 KiB
// of some 15 KiB remains: the identity, labels and annotations of the pod, and
// the requests, limits and ids of its containers.
func Slim(p *corev1.Pod) {
	p.ManagedFields, p.Finalizers, p.GenerateName = nil, nil, ""
	delete(p.Annotations, corev1.LastAppliedConfigAnnotation)
	spec := stored.InForce(p).Spec
	p.Spec = corev1.PodSpec{
		InitContainers: slimContainers(spec.InitContainers), Containers: slimContainers(spec.Containers),
		RestartPolicy: spec.RestartPolicy, TerminationGracePeriodSeconds: spec.TerminationGracePeriodSeconds,
		NodeName: spec.NodeName, HostNetwork: spec.HostNetwork, RuntimeClassName: spec.RuntimeClassName,
		PriorityClassName: spec.PriorityClassName, Priority: spec.Priority, Overhead: spec.Overhead,
		Resources: spec.Resources,
	}
	status := &p.Status
	p.Status = corev1.PodStatus{
		Phase: status.Phase, Reason: status.Reason, StartTime: status.StartTime, QOSClass: status.QOSClass, PodIP: status.PodIP,
		InitContainerStatuses: slimStatuses(status.InitContainerStatuses),
		ContainerStatuses:     slimStatuses(status.ContainerStatuses),
	}
}

// SlimOfAPI does the same as Slim, for a pod of the API server. Tenon derives
// the cgroup of a pod from annotations of the kubelet, but in the API server
// any client may have written them. SlimOfAPI keeps only the annotation that
// marks a static pod, and only if it is from a kubelet (kube.IsMirror).
func SlimOfAPI(p *corev1.Pod) {
	if !kube.IsMirror(p) {
		delete(p.Annotations, corev1.MirrorPodAnnotationKey)
		delete(p.Annotations, "kubernetes.io/config.source")
	}
	delete(p.Annotations, "kubernetes.io/config.hash")
	Slim(p)
}

func slimContainers(all []corev1.Container) []corev1.Container {
	slim := make([]corev1.Container, len(all))
	for i, c := range all {
		slim[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
	return slim
}

func slimStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	slim := make([]corev1.ContainerStatus, len(all))
	for i, s := range all {
		slim[i] = corev1.ContainerStatus{Name: s.Name, ContainerID: s.ContainerID, State: s.State}
	}
	return slim
}
