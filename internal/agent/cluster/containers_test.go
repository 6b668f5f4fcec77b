package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/model/node"
)

// TestContainersAreCountedByThePlaceOfTheirCgroup counts the containers of a
// node whose kubelet has the driver systemd and whose runtime has not.
func TestContainersAreCountedByThePlaceOfTheirCgroup(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := func(name, id string) corev1.Pod {
		p := corev1.Pod{}
		p.Namespace, p.Name, p.UID, p.Status.Phase = "a", name, "u", corev1.PodRunning
		p.Spec.Containers = []corev1.Container{{Name: "c"}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://" + id, State: running}}
		return p
	}
	l := kube.Layout{Systemd: true}
	job, web, ended := pod("job", "1"), pod("web", "2"), pod("ended", "3")
	web.UID, ended.Status.Phase = "w", corev1.PodSucceeded
	pods := []corev1.Pod{job, web, ended}
	const outside = "system.slice/kubepods-besteffort-podu.slice:cri-containerd:1"
	there := map[node.CgroupPath]bool{l.Pod(&job): true, l.Pod(&web): true, outside: true}
	look := func() nodereport.Containers {
		all, _ := kube.Workloads(pods, l, func(p node.CgroupPath) bool { return there[p] })
		return whereContainersAre(pods, l, all, func(p node.CgroupPath) bool { return there[p] })
	}
	if got, want := look(), (nodereport.Containers{Running: 2, Outside: 1, Example: outside, Expected: l.Pod(&web)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	there[l.Container(l.Pod(&web), "containerd://2")] = true
	if got := look(); got.Inside != 1 || got.Outside != 1 {
		t.Errorf("%+v", got)
	}
	there = map[node.CgroupPath]bool{} // also the cgroups of pods are elsewhere, for example below another root
	if got := look(); got.Running != 2 || got.Inside != 0 || got.Outside != 0 || got.OtherDriver != 0 {
		t.Errorf("%+v", got)
	}
	// The driver was changed from cgroupfs to systemd while the job ran.
	before := kube.Layout{}.Pod(&job)
	there = map[node.CgroupPath]bool{before: true, l.Pod(&web): true, l.Container(l.Pod(&web), "containerd://2"): true}
	if got, want := look(), (nodereport.Containers{Running: 2, Inside: 1, OtherDriver: 1, Example: before, Expected: l.Pod(&web)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
