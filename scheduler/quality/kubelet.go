package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"

	"tenon.sh/tenon/internal/model/unit"
)

// container is the name of the only container of each pod.
const container = "main"

// kubelet is kube-scheduler, and on each node the real static policy of the
// kubelet's CPU manager. kube-scheduler knows only amounts. If aligned is set,
// the policy prefers whole L3 caches (prefer-align-cpus-by-uncorecache), and
// the Topology Manager tries to use few NUMA nodes (best-effort).
type kubelet struct {
	hosts   []*host
	order   nodeOrder
	aligned bool
	options map[string]string
	ctx     context.Context
	frame   *frame
	details *topology.CPUTopology
	nodes   []*manager
}

// A manager holds the CPU manager and the Topology Manager of one node.
type manager struct {
	policy cpumanager.Policy
	state  state.State
	scope  topologymanager.Scope
}

func newKubelet(f *frame, hosts []*host, order nodeOrder, aligned bool) *kubelet {
	k := &kubelet{
		hosts: hosts, order: order, aligned: aligned, options: map[string]string{}, frame: f, nodes: make([]*manager, len(hosts)),
		ctx: klog.NewContext(context.Background(), klog.Logger{}),
		details: &topology.CPUTopology{
			NumCPUs: f.cpus, NumCores: len(f.cores), NumUncoreCache: len(f.groups[cacheLevel]), NumSockets: f.sockets,
			NumNUMANodes: len(f.groups[numaLevel]), CPUDetails: topology.CPUDetails{},
		},
	}
	for c := range f.cpus {
		k.details.CPUDetails[c] = topology.CPUInfo{
			NUMANodeID: f.at[numaLevel][c], SocketID: f.at[socketLevel][c], CoreID: f.coreOf[c], UncoreCacheID: f.at[cacheLevel][c],
		}
	}
	if aligned {
		k.options[cpumanager.PreferAlignByUnCoreCacheOption] = "true"
	}
	return k
}

func (k *kubelet) begin(at int, closed unit.CPUSet) error {
	m := &manager{state: state.NewMemoryState(klog.Logger{}), scope: topologymanager.NewNoneScope()}
	if k.aligned {
		numa := &topologymanager.NUMAInfo{}
		for n := range k.frame.groups[numaLevel] {
			numa.Nodes = append(numa.Nodes, n)
		}
		m.scope = topologymanager.NewContainerScope(topologymanager.NewBestEffortPolicy(numa, topologymanager.PolicyOptions{}))
	}
	reserve := k.frame.reservedCPUs()
	var err error
	m.policy, err = cpumanager.NewStaticPolicy(klog.Logger{}, k.details, reserve.Len(), setOf(reserve), m.scope, k.options)
	if err != nil {
		return fmt.Errorf("make the static policy of the kubelet: %w", err)
	}
	if err := m.policy.Start(klog.Logger{}, m.state); err != nil {
		return fmt.Errorf("start the static policy of the kubelet: %w", err)
	}
	m.state.SetDefaultCPUSet(k.details.CPUDetails.CPUs().Difference(setOf(closed.Minus(reserve))))
	m.scope.AddHintProvider(klog.Logger{}, m)
	k.nodes[at] = m
	return nil
}

func (k *kubelet) room(at int, c *claim) bool { return k.hosts[at].spare() >= c.request }

func (k *kubelet) worth(at int, c *claim) float64 { return k.order(k.hosts[at], c) }

func (k *kubelet) take(at int, c *claim) (unit.CPUSet, bool) {
	if c.cpus == 0 {
		return unit.CPUSet{}, true // the pod runs on the shared CPUs
	}
	m, p := k.nodes[at], podOf(c)
	if r := m.scope.Admit(k.ctx, p, lifecycle.AddOperation); !r.Admit {
		return unit.CPUSet{}, false
	}
	m.scope.AddContainer(p, &p.Spec.Containers[0], c.id)
	set, _ := m.state.GetCPUSet(c.id, container)
	var out unit.CPUSet
	for _, cpu := range set.UnsortedList() {
		out = out.With(unit.CPU(cpu))
	}
	return out, true
}

func (k *kubelet) leave(at int, c *claim) {
	m := k.nodes[at]
	_ = m.policy.RemoveContainer(klog.Logger{}, m.state, c.id, container) // it always returns nil
	_ = m.scope.RemoveContainer(klog.Logger{}, c.id)
}

// podOf returns a Guaranteed pod with a whole number of CPUs. The static policy
// chooses CPUs only for such pods.
func podOf(c *claim) *corev1.Pod {
	r := corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(int64(c.cpus), resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(1<<30, resource.BinarySI),
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: c.id, Namespace: "default", UID: types.UID(c.id)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container, Resources: corev1.ResourceRequirements{Requests: r, Limits: r}}}},
	}
}

func setOf(s unit.CPUSet) cpuset.CPUSet {
	var all []int
	for c := range s.All() {
		all = append(all, int(c))
	}
	return cpuset.New(all...)
}

// A manager answers the Topology Manager by the policy and the state of the CPU
// manager.

// GetTopologyHints implements topologymanager.HintProvider.
func (m *manager) GetTopologyHints(l klog.Logger, p *corev1.Pod, c *corev1.Container, o lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	return m.policy.GetTopologyHints(l, m.state, p, c, o)
}

// GetPodTopologyHints implements topologymanager.HintProvider.
func (m *manager) GetPodTopologyHints(l klog.Logger, p *corev1.Pod, o lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	return m.policy.GetPodTopologyHints(l, m.state, p, o)
}

// AllocatePod implements topologymanager.HintProvider.
func (m *manager) AllocatePod(l klog.Logger, p *corev1.Pod, o lifecycle.Operation) error {
	return m.policy.AllocatePod(l, m.state, p, o)
}

// Allocate implements topologymanager.HintProvider.
func (m *manager) Allocate(ctx context.Context, p *corev1.Pod, c *corev1.Container, o lifecycle.Operation) error {
	return m.policy.Allocate(klog.FromContext(ctx), m.state, p, c, o)
}

var _ topologymanager.HintProvider = &manager{}
