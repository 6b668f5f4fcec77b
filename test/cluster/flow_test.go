package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/cpureport"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/podpages"
	"tenon.sh/tenon/internal/cluster/schedulers"
	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// reportsPath is where the API server has the reports of the nodes.
const reportsPath = "/apis/tenon.sh/v1alpha1/nodereports"

// A flow is a control plane under a stream of pods. Its agents make the
// decisions of the real agent, follow the contracts, and report. A checker sees
// only the watch events and the reports.
type flow struct {
	*schedulerCluster
	all    *testing.T // the test that the watch and the agents belong to
	client kubernetes.Interface

	mu    sync.Mutex
	pods  map[types.UID]*corev1.Pod
	facts map[string]map[types.UID]unit.CPUSet // by node: the CPUs of each pod in the last report
	said  map[string]place.Report
	twice map[cpuAt][]string // CPUs with two owners now
	ever  []string           // CPUs that had two owners for a time
	wrong []string           // CPUs with two owners that are both in one report
}

// A cpuAt is a CPU of a node.
type cpuAt struct {
	node string
	cpu  unit.CPU
}

// newFlow begins to watch the pods of a control plane, with agents.
func newFlow(h *schedulerCluster) *flow {
	h.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", h.c.Kubeconfig("admin"))
	must(h.t, err)
	config.Dial, config.QPS = h.c.Dial, -1
	client, err := kubernetes.NewForConfig(config)
	must(h.t, err)
	f := &flow{
		schedulerCluster: h, all: h.t, client: client, pods: map[types.UID]*corev1.Pod{}, facts: map[string]map[types.UID]unit.CPUSet{},
		said: map[string]place.Report{}, twice: map[cpuAt][]string{},
	}
	ctx, stop := context.WithCancel(h.t.Context())
	list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	must(h.t, err)
	for i := range list.Items {
		f.see(watch.Event{Type: watch.Added, Object: &list.Items[i]})
	}
	w, err := client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must(h.t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for e := range w.ResultChan() {
			if e.Type == watch.Error && ctx.Err() != nil {
				continue // the end of the test cut the stream
			}
			f.see(e)
		}
		if ctx.Err() == nil {
			f.all.Error("the watch of the pods ended")
		}
	})
	running.Go(func() { f.agents(ctx) })
	h.t.Cleanup(func() {
		stop()
		w.Stop()
		running.Wait()
	})
	return f
}

// see handles one watch event.
func (f *flow) see(e watch.Event) {
	p, ok := e.Object.(*corev1.Pod)
	if !ok {
		f.all.Errorf("the watch says %s %+v", e.Type, e.Object)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Type == watch.Deleted {
		delete(f.pods, p.UID)
	} else {
		f.pods[p.UID] = p
	}
	f.check(p.Spec.NodeName)
}

// check finds the CPUs of a node that two pods own. The owned CPUs of a pod are
// those in the report of the node or, if the report does not know the pod,
// those in its contract. The caller holds f.mu.
func (f *flow) check(at string) {
	owners := map[cpuAt][]string{}
	for _, p := range f.pods {
		if p.Spec.NodeName != at || at == "" {
			continue
		}
		set, reported := f.facts[at][p.UID]
		if !reported {
			c, _, _ := kube.ChoiceOf(p)
			set = c.CPUs
		}
		for cpu := range set.All() {
			owners[cpuAt{at, cpu}] = append(owners[cpuAt{at, cpu}], p.Name)
		}
	}
	for cpu := range f.twice {
		if cpu.node == at && len(owners[cpu]) < 2 {
			delete(f.twice, cpu)
		}
	}
	for cpu, names := range owners {
		if len(names) > 1 && f.twice[cpu] == nil {
			f.twice[cpu] = names
			f.ever = append(f.ever, fmt.Sprintf("%v own CPU %d of %s", names, cpu.cpu, at))
		}
	}
}

// agents makes the decisions and the reports of all nodes until ctx ends.
func (f *flow) agents(ctx context.Context) {
	had, sequence, last := map[string]hold.Held{}, map[string]int64{}, map[string]time.Time{}
	topology := cachesOfEight()
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		f.mu.Lock()
		nodes := slices.Clone(f.nodes)
		f.mu.Unlock()
		for _, at := range nodes {
			f.mu.Lock()
			g, known := f.decide(had[at], at, topology)
			f.mu.Unlock()
			had[at] = g.Held
			r := place.Report{Topology: topology, Keep: 1, Pods: map[place.UID]cpus.Allocation{}}
			told := map[types.UID]unit.CPUSet{}
			for _, uid := range known {
				told[uid], _ = g.Exclusive(node.WorkloadID(uid))
				if set := told[uid]; !set.Empty() {
					r.Pods[place.UID(uid)] = cpus.Allocation{Policy: cpus.Exclusive, CPUs: set}
				}
			}
			if sequence[at] > 0 && f.sameReport(at, told) && time.Since(last[at]) < 20*time.Second {
				continue
			}
			sequence[at]++
			last[at] = time.Now()
			if err := f.report(ctx, at, sequence[at], r); err != nil {
				if ctx.Err() == nil {
					f.all.Errorf("report of %s: %v", at, err)
				}
				return
			}
			f.learn(at, told, r)
		}
	}
}

// decide makes the decision that the agent of a node makes. The caller holds
// f.mu.
func (f *flow) decide(had hold.Held, at string, topology node.Topology) (hold.Grants, []types.UID) {
	s := node.Snapshot{At: time.Unix(1, 0), Topology: topology, Knobs: node.Knobs{Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}}
	var known []types.UID
	for uid, p := range f.pods {
		if p.Spec.NodeName == at {
			known = append(known, uid)
		}
	}
	slices.Sort(known)
	for _, uid := range known {
		p := f.pods[uid]
		o, _ := kube.OverridesOf(p)
		w := node.Workload{ID: node.WorkloadID(uid), Class: kube.ClassWithDefault(p), Cgroup: node.CgroupPath(uid), CPURequest: kube.Native(p).CPURequest, Overrides: o}
		s.Workloads = append(s.Workloads, w)
		s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
	}
	if had.Allocations == nil {
		had.Allocations = map[node.WorkloadID]cpus.Allocation{}
	}
	return hold.Decide(facts.NodeCPUs{}, 0, had, s), known
}

// report replaces the report of a node. A merge patch would not remove the last
// pods that held CPUs, because an empty list of them is omitted.
func (f *flow) report(ctx context.Context, at string, sequence int64, r place.Report) error {
	data, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": v1alpha1.NodeReportStatus{
		Run: "flow", Sequence: sequence, Reported: metav1.NowMicro(), CPUs: cpureport.Convert(r),
	}}})
	if err != nil {
		return err
	}
	return f.client.Discovery().RESTClient().Patch(types.JSONPatchType).AbsPath(reportsPath, at, "status").Body(data).Do(ctx).Error()
}

// sameReport reports whether the last report of a node had the same content.
func (f *flow) sameReport(at string, told map[types.UID]unit.CPUSet) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Equal(f.facts[at], told)
}

// learn stores what a report says. If two pods own a CPU, and the report lists
// both pods, that is a fault.
func (f *flow) learn(at string, told map[types.UID]unit.CPUSet, r place.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.facts[at], f.said[at] = told, r
	all := unit.CPUSet{}
	for uid, set := range told {
		if !set.Intersect(all).Empty() {
			f.wrong = append(f.wrong, fmt.Sprintf("%s reports CPUs %v of %s that another has, too", at, set.Intersect(all), uid))
		}
		all = all.Union(set)
	}
	f.check(at)
}

// cachesOfEight is the topology of the nodes of a schedulerCluster.
func cachesOfEight() node.Topology {
	var t node.Topology
	for c := range 16 {
		t.CPUs = append(t.CPUs, node.LogicalCPU{ID: unit.CPU(c), Core: node.CoreID(c % 8), L3: node.CacheID(c % 8 / 4)})
	}
	return t
}

// create creates pods that own as many CPUs as they request.
func (f *flow) create(prefix string, sizes ...int) {
	f.t.Helper()
	f.createIn(nil, prefix, sizes...)
}

// createIn creates the pods of a PodGroup. If the group is nil, the pods belong
// to no group.
func (f *flow) createIn(group *corev1.PodSchedulingGroup, prefix string, sizes ...int) {
	f.t.Helper()
	for i, n := range sizes {
		grace := int64(0)
		r := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("64Mi")}
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i), Annotations: map[string]string{kube.AnnotationCPUSetScheduler: "true"}},
			Spec: corev1.PodSpec{
				SchedulerName: "tenon-scheduler", TerminationGracePeriodSeconds: &grace, SchedulingGroup: group,
				Containers: []corev1.Container{{Name: "main", Image: "busybox:1", Resources: corev1.ResourceRequirements{Requests: r, Limits: r}}},
			},
		}
		_, err := f.client.CoreV1().Pods("default").Create(f.t.Context(), p, metav1.CreateOptions{})
		must(f.t, err)
	}
}

// remove deletes pods by force, because on nodes without a kubelet they would
// not end otherwise.
func (f *flow) remove(pods []*corev1.Pod) {
	f.t.Helper()
	now := int64(0)
	for _, p := range pods {
		err := f.client.CoreV1().Pods("default").Delete(f.t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		must(f.t, err)
	}
}

// list returns the pods that the watch has reported and that a function (keep) selects.
func (f *flow) list(keep func(*corev1.Pod) bool) []*corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*corev1.Pod
	for _, p := range f.pods {
		if keep(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func isBound(p *corev1.Pod) bool   { return p.Spec.NodeName != "" }
func isWaiting(p *corev1.Pod) bool { return p.Spec.NodeName == "" }

// run creates and deletes pods, and calls a function (meanwhile) at random times.
func (f *flow) run(rnd *rand.Rand, prefix string, rounds int, meanwhile func(round int)) (created int) {
	f.t.Helper()
	for round := range rounds {
		sizes := make([]int, 10)
		for i := range sizes {
			sizes[i] = 1 + rnd.IntN(6)
		}
		created += len(sizes)
		f.create(fmt.Sprintf("%s%d", prefix, round), sizes...)
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
		meanwhile(round)
		all := f.list(func(*corev1.Pod) bool { return true })
		rnd.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		f.remove(all[:max(len(all)-5*len(f.nodes), 0)]) // enough pods to fill the nodes, and some more
	}
	return created
}

// awaitRest waits until the nodes have reported all pods, and kubectl tenon
// explain pod names no node that would take a waiting pod.
func (f *flow) awaitRest() {
	f.t.Helper()
	requireSoon(f.t, 2*time.Minute, "no pod waits while there is room", func() error {
		list, err := f.client.CoreV1().Nodes().List(f.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		text, err := f.c.Get(f.t.Context(), reportsPath)
		if err != nil {
			return err
		}
		var reports v1alpha1.NodeReportList
		if err := json.Unmarshal(text, &reports); err != nil {
			return err
		}
		pods, err := f.client.CoreV1().Pods("default").List(f.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		seen := podpages.New(nodepages.Nodes(list.Items, reports.Items), pods.Items, time.Now())
		for i := range pods.Items {
			p := &pods.Items[i]
			found, _ := seen.ExplainPod(p.Namespace, p.Name, schedulers.Seen{})
			page := found.Text()
			if isWaiting(p) && !strings.Contains(page, "It has no node; 0 of ") {
				return fmt.Errorf("%s waits:\n%s", p.Name, page)
			}
			if isBound(p) && !strings.Contains(page, " for itself: ") {
				return fmt.Errorf("%s is bound:\n%s", p.Name, page)
			}
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.twice) > 0 || len(f.wrong) > 0 {
		f.t.Errorf("CPUs with two owners at rest: %v; after a report that knew both: %v", f.twice, f.wrong)
	}
}
