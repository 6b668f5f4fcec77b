package inprocess_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/scheduler/inprocess"
)

// sixteenCPUs is a machine with two L3 caches. Each cache has four cores of two
// threads.
var sixteenCPUs = func() node.Topology {
	var t node.Topology
	for c := range 16 {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(c / 2), L3: node.CacheID(c / 8)})
	}
	return t
}()

// A bed contains nodes with agents, and an API server. An independent checker
// reads the watch events of that server.
type bed struct {
	t       *testing.T
	api     *inprocess.API
	reports *inprocess.Reports
	names   []string

	mu       sync.Mutex
	owners   map[string]types.UID // by node: the owner of each CPU, by the contracts
	overlaps []string
	said     map[string]place.Report // the last report of each node
	reserved map[string]unit.CPUSet  // by node: the CPUs that its agent gives to no pod
}

func newBed(t *testing.T, nodes int) *bed {
	t.Helper()
	b := &bed{t: t, owners: map[string]types.UID{}, said: map[string]place.Report{}, reserved: map[string]unit.CPUSet{}}
	var objects []corev1.Node
	var reports []v1alpha1.NodeReport
	for i := range nodes {
		name := fmt.Sprint("n", i)
		b.names = append(b.names, name)
		all := amounts(16)
		all[corev1.ResourcePods] = resource.MustParse("110")
		objects = append(objects, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: corev1.NodeStatus{Capacity: all, Allocatable: all}})
		reports = append(reports, reportOf(name, 1, place.Report{Topology: sixteenCPUs, Keep: 1}))
	}
	var err error
	if b.reports, err = inprocess.Serve(t.Context(), reports); err != nil {
		t.Fatal(err)
	}
	b.api = inprocess.New(objects, nil)
	b.api.Watch(b.check)
	go b.agents()
	return b
}

func reportOf(name string, sequence int64, r place.Report) v1alpha1.NodeReport {
	return v1alpha1.NodeReport{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "0"}, Status: v1alpha1.NodeReportStatus{Run: "run", Sequence: sequence, CPUs: cpureport.Convert(r)},
	}
}

func amounts(cpus int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("64Gi")}
}

// pods creates pods that own as many CPUs as they request.
func (b *bed) pods(prefix string, priority int32, sizes ...int) []*corev1.Pod {
	all := podsOf(prefix, priority, sizes...)
	b.api.Create(all)
	return all
}

func podsOf(prefix string, priority int32, sizes ...int) []*corev1.Pod {
	var all []*corev1.Pod
	for i, n := range sizes {
		name := fmt.Sprint(prefix, "-", i)
		r := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI)}
		grace := int64(0)
		all = append(all, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Annotations: map[string]string{kube.AnnotationCPUSetScheduler: "true"}},
			Spec: corev1.PodSpec{
				SchedulerName: corev1.DefaultSchedulerName, Priority: &priority, TerminationGracePeriodSeconds: &grace,
				Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: r, Limits: r}}},
			},
		})
	}
	return all
}

// check is the independent checker. It uses only the watch events.
func (b *bed) check(before, after *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	each := func(p *corev1.Pod, visit func(at string)) {
		if p == nil || p.Spec.NodeName == "" {
			return
		}
		c, _, _ := kube.ChoiceOf(p)
		for cpu := range c.CPUs.All() {
			visit(fmt.Sprintf("CPU %d of %s", cpu, p.Spec.NodeName))
		}
	}
	each(before, func(at string) {
		if b.owners[at] == before.UID {
			delete(b.owners, at)
		}
	})
	each(after, func(at string) {
		if first := b.owners[at]; first != "" {
			b.overlaps = append(b.overlaps, fmt.Sprintf("%s and %s own %s", first, after.UID, at))
			return
		}
		b.owners[at] = after.UID
	})
}

// agents simulates the agents of the nodes. They decide as the real agent does,
// follow the contracts, and send reports. Like the kubelet, they remove the pods
// that are being deleted.
func (b *bed) agents() {
	had, sequence := map[string]hold.Held{}, map[string]int64{}
	last := map[string]string{}
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-b.t.Context().Done():
			return
		case <-every.C:
		}
		at := map[string][]*corev1.Pod{}
		for _, p := range b.api.Pods() {
			if p.DeletionTimestamp != nil {
				b.api.Remove([]*corev1.Pod{p})
				continue
			}
			at[p.Spec.NodeName] = append(at[p.Spec.NodeName], p)
		}
		for _, name := range b.names {
			b.mu.Lock()
			reserved := b.reserved[name]
			b.mu.Unlock()
			g := decide(had[name], at[name], reserved)
			had[name] = g.Held
			r := place.Report{Topology: sixteenCPUs, Keep: 1, Reserved: reserved, Pods: map[place.UID]cpus.Allocation{}}
			for id := range g.Notes {
				r.Pods[place.UID(id)] = g.Allocations[id]
			}
			report := reportOf(name, sequence[name]+2, r)
			if text, _ := json.Marshal(report.Status.CPUs); string(text) != last[name] {
				last[name] = string(text)
				sequence[name]++
				b.reports.Put(report)
				b.mu.Lock()
				b.said[name] = r
				b.mu.Unlock()
			}
		}
	}
}

// decide returns the decision of the agent of one node.
func decide(had hold.Held, pods []*corev1.Pod, reserved unit.CPUSet) hold.Grants {
	s := node.Snapshot{At: time.Unix(1, 0), Topology: sixteenCPUs, Knobs: node.Knobs{Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}}
	for _, p := range pods {
		o, _ := kube.OverridesOf(p)
		w := node.Workload{
			ID: node.WorkloadID(p.UID), Class: kube.ClassWithDefault(p), Cgroup: node.CgroupPath(p.UID), CPURequest: kube.Native(p).CPURequest, Overrides: o,
		}
		s.Workloads = append(s.Workloads, w)
		s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
	}
	if had.Allocations == nil {
		had.Allocations = map[node.WorkloadID]cpus.Allocation{}
	}
	return hold.Decide(facts.NodeCPUs{ReservedCPUs: reserved}, 0, had, s)
}

// start starts a scheduler. It retries a refused pod soon.
func (b *bed) start(ctx context.Context) context.CancelFunc {
	b.t.Helper()
	ctx, stop := context.WithCancel(ctx)
	if _, err := inprocess.Start(ctx, b.api, b.reports, scheduler.WithPodInitialBackoffSeconds(0), scheduler.WithPodMaxBackoffSeconds(1)); err != nil {
		b.t.Fatal(err)
	}
	return stop
}

// settles waits until two conditions hold: no pod waits while a node has room
// for it, and the nodes have reported all pods.
func (b *bed) settles() {
	b.t.Helper()
	eventually(b.t, func() error {
		free := map[string]int64{}
		for _, name := range b.names {
			free[name] = 15
		}
		pods := b.api.Pods()
		for _, p := range pods {
			free[p.Spec.NodeName] -= p.Spec.Containers[0].Resources.Requests.Cpu().Value()
		}
		for _, p := range pods {
			for _, name := range b.names {
				if want := p.Spec.Containers[0].Resources.Requests.Cpu().Value(); p.Spec.NodeName == "" && want <= free[name] {
					return fmt.Errorf("%s waits for %d CPUs, and %s has %d", p.Name, want, name, free[name])
				}
			}
		}
		return b.compareReports(pods)
	})
}

// compareReports compares the last reports with the pods. No CPU may have two
// holders. Each bound pod must hold as many CPUs as it requests, unless its
// node has fewer.
func (b *bed) compareReports(pods []*corev1.Pod) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range b.names {
		held, all := map[place.UID]unit.CPUSet{}, unit.CPUSet{}
		for uid, a := range b.said[name].Pods {
			if !a.CPUs.Intersect(all).Empty() {
				return fmt.Errorf("%s reports a CPU of two pods: %+v", name, b.said[name].Pods)
			}
			all, held[uid] = all.Union(a.CPUs), a.CPUs
		}
		if requestedCPUs(pods, name) > 15 { // two schedulers at once gave the node too many pods, so it refuses some
			continue
		}
		for _, p := range pods {
			want := p.Spec.Containers[0].Resources.Requests.Cpu().Value()
			if set := held[place.UID(p.UID)]; p.Spec.NodeName == name && int64(set.Len()) != want {
				return fmt.Errorf("%s reports that %s holds %v of %d CPUs", name, p.Name, set, want)
			}
		}
	}
	return nil
}

// requestedCPUs returns the number of CPUs that the pods of a node request.
func requestedCPUs(pods []*corev1.Pod, node string) int64 {
	n := int64(0)
	for _, p := range pods {
		if p.Spec.NodeName == node {
			n += p.Spec.Containers[0].Resources.Requests.Cpu().Value()
		}
	}
	return n
}

// limit is the time after which a test gives up.
const limit = 2 * time.Minute

func eventually(t *testing.T, is func() error) {
	t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < limit; time.Sleep(50 * time.Millisecond) {
		if err = is(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// rounds returns the number of rounds of a test: few, or many if
// TENON_TEST_LONG is set.
func rounds(few, many int) int {
	if os.Getenv("TENON_TEST_LONG") != "" {
		return many
	}
	return few
}

// churn creates and deletes pods at random.
func (b *bed) churn(rnd *rand.Rand, round int) {
	sizes := make([]int, 6)
	for i := range sizes {
		sizes[i] = 1 + rnd.IntN(6)
	}
	b.pods(fmt.Sprint("r", round), 0, sizes...)
	time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
	pods := b.api.Pods()
	slices.SortFunc(pods, func(a, c *corev1.Pod) int { return int(a.CreationTimestamp.Unix() - c.CreationTimestamp.Unix()) })
	rnd.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	b.api.Remove(pods[:min(len(pods), rnd.IntN(8))])
}

// TestNoCPUIsOwnedTwiceThroughFaults uses an unreliable API server. It loses
// answers to successful binds, is unavailable for a while, and answers with
// conflicts. Meanwhile schedulers end, others replace them, and pods are
// created and deleted.
func TestNoCPUIsOwnedTwiceThroughFaults(t *testing.T) {
	b := newBed(t, 3)
	faults := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	counts := map[string]int{}
	b.api.Fail(func(x *corev1.Binding) (bool, error) {
		pods := corev1.Resource("pods")
		switch faults.IntN(10) {
		case 0:
			counts["bound, and the answer is lost"]++
			return true, apierrors.NewTimeoutError("the request did not end in time", 1)
		case 1:
			counts["bound, and the connection is lost"]++
			return true, errors.New("http2: client connection lost")
		case 2:
			counts["503"]++
			return false, apierrors.NewServiceUnavailable("the server is not ready")
		case 3:
			counts["409"]++
			return false, apierrors.NewConflict(pods, x.Name, errors.New("the object has been modified"))
		}
		counts["bound"]++
		return true, nil
	})
	rnd := rand.New(rand.NewPCG(2, 3))
	stop := b.start(t.Context())
	n := rounds(8, 200)
	for round := range n {
		b.churn(rnd, round)
		if round%2 == 1 {
			stop() // a leader that loses its lease also ends with unfinished binds
			stop = b.start(t.Context())
		}
	}
	b.api.Fail(nil)
	b.settles()
	stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.overlaps) > 0 {
		t.Errorf("%d overlaps, such as: %s", len(b.overlaps), b.overlaps[0])
	}
	t.Logf("%d rounds with %d schedulers: %v", n, n/2+1, counts)
}

// TestTwoSchedulersAtOnceEndWithoutOverlaps runs two active schedulers for the
// same pods. Both may give the same CPU to different pods before they see each
// other's choice. Then the node decides which pod gets the CPU, and both
// schedulers follow its report.
func TestTwoSchedulersAtOnceEndWithoutOverlaps(t *testing.T) {
	b := newBed(t, 3)
	defer b.start(t.Context())()
	defer b.start(t.Context())()
	rnd := rand.New(rand.NewPCG(4, 5))
	n := rounds(6, 100)
	for round := range n {
		b.churn(rnd, round)
	}
	b.settles()
	b.mu.Lock()
	defer b.mu.Unlock()
	t.Logf("%d rounds: %d CPUs were in two contracts for a time", n, len(b.overlaps))
}

// TestNodesFillUp fills empty nodes with equal pods. At first all nodes have room
// and equal ratings, so the plugin need not filter and score them. In the end no
// node has room. Then the remaining pods must wait for the right reason, and must
// get each CPU that another pod gives up.
func TestNodesFillUp(t *testing.T) {
	b := newBed(t, 4)
	defer b.start(t.Context())()
	const fit, wait = 4 * 15, 5 // one CPU of each node stays open
	pods := b.pods("one", 0, slices.Repeat([]int{1}, fit+wait)...)
	want := "0/4 nodes are available: 4 no room for own CPUs: the last open ones stay open."
	full := func() error {
		left := 0
		for _, p := range b.api.Pods() {
			if p.Spec.NodeName != "" {
				continue
			}
			left++
			if len(p.Status.Conditions) != 1 || !strings.HasPrefix(p.Status.Conditions[0].Message, want) {
				return fmt.Errorf("%s waits: %+v, want %q", p.Name, p.Status.Conditions, want)
			}
		}
		if n := len(b.api.Pods()) - left; n != fit {
			return fmt.Errorf("%d pods are bound, want %d", n, fit)
		}
		return b.compareReports(b.api.Pods())
	}
	eventually(t, full)
	for _, p := range b.api.Pods() {
		if p.Spec.NodeName != "" {
			b.api.Remove([]*corev1.Pod{p})
			break
		}
	}
	eventually(t, full)
	if n := len(b.api.Pods()); n != len(pods)-1 {
		t.Errorf("%d pods", n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.overlaps) > 0 {
		t.Error(b.overlaps)
	}
}

// TestAPreemptionFreesCPUs fills the nodes, and then creates a pod of higher
// priority.
func TestAPreemptionFreesCPUs(t *testing.T) {
	b := newBed(t, 2)
	defer b.start(t.Context())()
	low := b.pods("low", 0, 8, 8) // one for each node
	b.settles()
	high := b.pods("high", 1000, 12)[0]
	eventually(t, func() error {
		for _, p := range b.api.Pods() {
			if p.UID == high.UID && p.Spec.NodeName != "" {
				return b.compareReports(b.api.Pods())
			}
		}
		var lines string
		for _, p := range b.api.Pods() {
			lines += fmt.Sprintf("\n%s on %q, nominated for %q: %v", p.Name, p.Spec.NodeName, p.Status.NominatedNodeName, p.Status.Conditions)
		}
		return errors.New("the pod of higher priority has no node" + lines)
	})
	if left := len(b.api.Pods()) - 1; left != len(low)-1 {
		t.Errorf("%d of %d pods of lower priority are left: the pod needs the CPUs of one", left, len(low))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.overlaps) > 0 {
		t.Error(b.overlaps)
	}
}
