package plugin

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// handle implements the functions of the scheduler that the plugin uses. All
// other functions panic.
type handle struct {
	fwk.Handle
	client  *fake.Clientset
	factory informers.SharedInformerFactory
	nodes   lister

	mu    sync.Mutex
	woken []string
}

func (h *handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h *handle) APICacher() fwk.APICacher                               { return nil }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *handle) SnapshotSharedLister() fwk.SharedLister                 { return snapshot{nodes: h.nodes} }
func (h *handle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range pods {
		h.woken = append(h.woken, name)
	}
}

// A snapshot has only nodes.
type snapshot struct {
	fwk.SharedLister
	nodes lister
}

func (s snapshot) NodeInfos() fwk.NodeInfoLister { return s.nodes }

// A lister finds nodes by their names.
type lister struct {
	fwk.NodeInfoLister
	of map[string]fwk.NodeInfo
}

func (l lister) Get(node string) (fwk.NodeInfo, error) {
	if n, known := l.of[node]; known {
		return n, nil
	}
	return nil, fmt.Errorf("no node %s", node)
}

// state is a fwk.CycleState that has only the data of plugins.
type state struct {
	fwk.CycleState
	of    map[fwk.StateKey]fwk.StateData
	trial bool // of a PodGroup
}

func newState() *state { return &state{of: map[fwk.StateKey]fwk.StateData{}} }

func (s *state) Read(k fwk.StateKey) (fwk.StateData, error) {
	if d, known := s.of[k]; known {
		return d, nil
	}
	return nil, fwk.ErrNotFound
}
func (s *state) Write(k fwk.StateKey, d fwk.StateData) { s.of[k] = d }
func (s *state) IsPodGroupSchedulingCycle() bool       { return s.trial }
func (s *state) Clone() fwk.CycleState {
	next := newState()
	next.trial = s.trial
	for k, d := range s.of {
		next.of[k] = d.Clone()
	}
	return next
}

type nodeInfo struct {
	fwk.NodeInfo
	node *corev1.Node
	pods []fwk.PodInfo
}

func (n nodeInfo) Node() *corev1.Node     { return n.node }
func (n nodeInfo) GetPods() []fwk.PodInfo { return n.pods }

func named(node string) *nodeInfo {
	return &nodeInfo{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}}
}

type podInfo struct {
	fwk.PodInfo
	pod *corev1.Pod
}

func (p podInfo) GetPod() *corev1.Pod { return p.pod }

// machine returns the report of a node with these numbers of caches, and of
// cores in each cache. Each core has two threads, whose numbers differ by half
// the number of CPUs.
func machine(name string, sequence int64, caches, cores int, held ...map[place.UID]cpus.Allocation) *v1alpha1.NodeReport {
	var t node.Topology
	n := caches * cores
	for c := range 2 * n {
		core := c % n
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(core), L3: node.CacheID(core / cores)})
	}
	r := place.Report{Topology: t, Keep: 1}
	if len(held) > 0 {
		r.Pods = held[0]
	}
	return &v1alpha1.NodeReport{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     v1alpha1.NodeReportStatus{Run: "run", Sequence: sequence, CPUs: cpureport.Convert(r)},
	}
}

// pinned returns a pod that demands CPUs by ACK's annotation. The argument
// below is the pod's request in percent of its limit.
func pinned(name string, cpus int, below int) *corev1.Pod {
	p := plain(name)
	p.Annotations = map[string]string{kube.AnnotationCPUSetScheduler: "true"}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(int64(cpus*below*10), resource.DecimalSI)},
		Limits:   corev1.ResourceList{"cpu": *resource.NewQuantity(int64(cpus), resource.DecimalSI)},
	}
	return p
}

func plain(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
}

// bench is a plugin without informers. The test sets its clock.
type bench struct {
	*Plugin
	t      testing.TB
	handle *handle
	now    time.Time
}

func newBench(t testing.TB, reports ...*v1alpha1.NodeReport) *bench {
	t.Helper()
	client := fake.NewClientset()
	h := &handle{client: client, factory: informers.NewSharedInformerFactory(client, 0)}
	b := &bench{t: t, handle: h, now: time.Unix(1_800_000_000, 0)}
	k := newKeeper(h, defaultStale)
	k.now = func() time.Time { return b.now }
	b.Plugin = &Plugin{handle: h, keeper: k}
	for _, r := range reports {
		k.reportChanged(r)
	}
	return b
}

// tryNode filters a node for a pod. If the pod fits, it reserves the CPUs.
func (b *bench) tryNode(p *corev1.Pod, node string) (*state, string) {
	b.t.Helper()
	s := newState()
	if _, status := b.PreFilter(b.t.Context(), s, p, nil); !status.IsSuccess() {
		b.t.Fatalf("%s: PreFilter: %v", p.Name, status)
	}
	if status := b.Filter(b.t.Context(), s, p, named(node)); !status.IsSuccess() {
		return s, status.Message()
	}
	if status := b.Reserve(b.t.Context(), s, p, node); !status.IsSuccess() {
		return s, "Reserve: " + status.Message()
	}
	return s, ""
}

// wokenPods returns the waiting pods that the keeper would wake now.
func (b *bench) wokenPods() []string {
	return slices.Sorted(maps.Keys(b.keeper.fittingPods()))
}

// bound returns the pod as the API server stores it after a bind.
func bound(p *corev1.Pod, node string, words map[string]string) *corev1.Pod {
	next := p.DeepCopy()
	next.Spec.NodeName = node
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	maps.Copy(next.Annotations, words)
	return next
}

// run schedules a pod on a node, and lets the ledger see the bound pod.
func (b *bench) run(p *corev1.Pod, node string) *corev1.Pod {
	b.t.Helper()
	s, why := b.tryNode(p, node)
	if why != "" {
		b.t.Fatalf("%s does not fit on %s: %s", p.Name, node, why)
	}
	words := kube.ContractAnnotations(p, b.keeper.view(node).Map(), cycleOf(s).contract)
	q := bound(p, node, words)
	b.keeper.podChanged(nil, q)
	return q
}

func (b *bench) open(node string) int { return b.keeper.view(node).Open().Len() }

func (b *bench) holds(node string) string { return fmt.Sprint(b.keeper.view(node).Holds()) }

// skipsFilter reports whether the framework filters none of these nodes for a
// new pod.
func (b *bench) skipsFilter(nodes ...string) bool {
	b.t.Helper()
	infos := make([]fwk.NodeInfo, len(nodes))
	for i, name := range nodes {
		infos[i] = named(name)
	}
	s := newState()
	_, status := b.PreFilter(b.t.Context(), s, pinned("new", 4, 100), infos)
	if cycleOf(s) == nil {
		b.t.Error("Reserve does not find the cycle")
	}
	return status.IsSkip()
}

// scores rates nodes for a pod whose cycle has begun.
func (b *bench) scores(s *state, p *corev1.Pod, nodes ...string) []int64 {
	b.t.Helper()
	infos, scores := make([]fwk.NodeInfo, len(nodes)), make(fwk.NodeScoreList, len(nodes))
	for i, name := range nodes {
		infos[i], scores[i].Name = named(name), name
	}
	if status := b.PreScore(b.t.Context(), s, p, infos); !status.IsSuccess() {
		b.t.Fatal(status)
	}
	for i, info := range infos {
		score, status := b.Score(b.t.Context(), s, p, info)
		if !status.IsSuccess() {
			b.t.Fatal(status)
		}
		scores[i].Score = score
	}
	if status := b.NormalizeScore(b.t.Context(), s, p, scores); !status.IsSuccess() {
		b.t.Fatal(status)
	}
	all := make([]int64, len(nodes))
	for i := range scores {
		all[i] = scores[i].Score
	}
	return all
}
