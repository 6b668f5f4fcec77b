package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// These constants are the hardware of a node: sockets × L3 caches × cores × threads.
const (
	sockets, caches, cores, threads = 2, 4, 8, 2
	online                          = sockets * caches * cores * threads
)

// contents are the objects of a cluster.
type contents struct {
	nodes   []corev1.Node
	pods    []*corev1.Pod
	reports []v1alpha1.NodeReport
}

// cluster makes nodes with pods that are already bound. According to the
// reports of the nodes, a third of these pods own two CPUs each.
func cluster(nodes, bound int) contents {
	var c contents
	var t node.Topology
	for i := range online {
		core := i / threads
		socket := core / (caches * cores)
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: unit.CPU(i), Core: node.CoreID(core), L3: node.CacheID(core / cores), NUMA: node.NUMANode(socket), Socket: node.SocketID(socket),
		})
	}
	held := make([]map[place.UID]cpus.Allocation, nodes)
	for i := range bound {
		at := i % nodes
		p := podOf(fmt.Sprintf("bound-%d", i), i/nodes%3 == 0)
		p.Spec.NodeName = nodeName(at)
		if i/nodes%3 == 0 && len(held[at]) < online/4 {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
			k := len(held[at])
			if held[at] == nil {
				held[at] = map[place.UID]cpus.Allocation{}
			}
			held[at][place.UID(p.UID)] = cpus.Allocation{Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(t.CPUs[2*k].ID, t.CPUs[2*k+1].ID)}
		}
		c.pods = append(c.pods, p)
	}
	for i := range nodes {
		all := amounts(fmt.Sprint(online), "512Gi")
		all[corev1.ResourcePods] = resource.MustParse("250")
		c.nodes = append(c.nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), UID: types.UID(nodeName(i)), Labels: map[string]string{
				corev1.LabelHostname: nodeName(i), corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3),
			}},
			Status: corev1.NodeStatus{Capacity: all, Allocatable: all, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
		c.reports = append(c.reports, v1alpha1.NodeReport{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"},
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), ResourceVersion: "1"},
			Status:     v1alpha1.NodeReportStatus{Run: "run", Sequence: 1, CPUs: cpureport.Convert(place.Report{Topology: t, Keep: 1, Pods: held[i]})},
		})
	}
	return c
}

// withRefusing returns the cluster with a percentage of nodes that refuse all
// pods that ask for CPUs, because another program binds CPUs there.
func (c contents) withRefusing(percent int) contents {
	for i := range c.reports {
		if i%100 < percent {
			c.reports[i].Status.CPUs.Manager = "kubelet"
		}
	}
	return c
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// podOf returns a pod. If asks is true, it demands four CPUs of its own.
func podOf(name string, asks bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{"app": "load"}},
		Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName,
			Containers:    []corev1.Container{{Name: "main", Image: "registry.example/main:1", Resources: corev1.ResourceRequirements{Requests: amounts("100m", "500Mi")}}},
		},
	}
	if asks {
		p.Annotations = map[string]string{kube.AnnotationCPUSetScheduler: "true"}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts("4", "500Mi"), Limits: amounts("4", "500Mi")}
	}
	return p
}

// amounts returns a list of resources.
func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}
