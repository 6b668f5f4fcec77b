package containerstart

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// containerLimits are the limits of a container's cgroup.
type containerLimits struct {
	quota  time.Duration
	memory unit.Bytes
}

// randomPod returns a pod of any class whose containers request batch
// resources, native ones, both or none.
func randomPod(r *rand.Rand) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "p", UID: types.UID("u"), Labels: map[string]string{}}}
	if class := []string{"", "BE", "BE", "BE", "LS", "LSR", "SYSTEM"}[r.IntN(7)]; class != "" {
		p.Labels[kube.LabelQOSClass] = class
	}
	p.Status.Phase = corev1.PodRunning
	amount := func(l corev1.ResourceList, name corev1.ResourceName, unit int64) {
		if r.IntN(2) == 0 {
			l[name] = *resource.NewQuantity(unit*r.Int64N(40), resource.DecimalSI)
		}
	}
	for i := range 1 + r.IntN(3) {
		c := corev1.Container{Name: fmt.Sprint("c", i)}
		c.Resources.Requests, c.Resources.Limits = corev1.ResourceList{}, corev1.ResourceList{}
		kind := r.IntN(6)
		if kind != 0 && kind != 1 { // batch
			for _, l := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
				amount(l, kube.BatchCPU, 117)
				amount(l, kube.BatchMemory, 1<<20)
			}
		}
		if kind == 1 || kind == 2 { // native
			for _, l := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
				amount(l, corev1.ResourceCPU, 1)
				amount(l, corev1.ResourceMemory, 1<<20)
			}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, ContainerID: "containerd://" + c.Name})
	}
	return p
}

// TestTheRuntimeSetsWhatTheFirstTickWants compares NRI with the policies. The
// container runtime may set the limits of a container before its start, or the
// first tick may set them later. Both must set the same limits.
func TestTheRuntimeSetsWhatTheFirstTickWants(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 6))
	bounded := 0
	for range 3000 {
		p := randomPod(r)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var l kube.Layout
		native := kube.Natives(&p, l)
		ticks := afterFirstTick(p, l, native)
		for _, c := range p.Status.ContainerStatuses {
			path := l.Container(l.Pod(&p), c.ContainerID)
			own := containerLimits{facts.QuotaOf(native[path].CPULimit, node.DefaultPeriod), native[path].MemoryLimit.Or(unit.MaxBytes)}
			set, ours, err := limits(kube.Starting(&p, c.Name, true))
			if err != nil {
				t.Fatal(err)
			}
			if ours {
				bounded++
			}
			if got, want := withLimits(own, set), ticks[path]; got != want {
				t.Fatalf("container %s: NRI sets %+v, the first tick wants %+v, the kubelet %+v\n%s", c.Name, got, want, own, text)
			}
			checkWithoutSpec(t, p, c.Name, set)
		}
	}
	if bounded < 1000 {
		t.Errorf("Tenon limits only %d of the containers: too few for this test", bounded)
	}
}

// afterFirstTick returns the limits of the pod's containers after the first
// tick, which changes the kubelet's values.
func afterFirstTick(p corev1.Pod, l kube.Layout, native map[node.CgroupPath]kube.Amounts) map[node.CgroupPath]containerLimits {
	workloads, _ := kube.Workloads([]corev1.Pod{p}, l, func(node.CgroupPath) bool { return true })
	s := node.Snapshot{At: time.Unix(1, 0), Workloads: workloads, Knobs: node.Knobs{Kernel: node.Kernel{CgroupVersion: 2, PageSize: 4096}, Now: map[node.Knob]node.Value{}}}
	for path, a := range native {
		memory := node.NoMemoryLimit
		memory.Max = a.MemoryLimit.Or(unit.MaxBytes)
		s.Knobs.Now[node.Knob{Cgroup: path, File: node.FileMemory}] = memory
		s.Knobs.Now[node.Knob{Cgroup: path, File: node.FileCPUMax}] = node.CPUMax{Quota: facts.QuotaOf(a.CPULimit, node.DefaultPeriod), Period: node.DefaultPeriod}
	}
	_, wants := policy.Decide(policy.Config{CPUQOS: isolation.Config{Enable: true}}, policy.State{}, s)
	for _, w := range wants {
		if w.Intent == plan.Set {
			s.Knobs.Now[w.Knob] = w.Value
		}
	}
	all := map[node.CgroupPath]containerLimits{}
	for path := range native {
		cpu, _ := s.Knobs.Now[node.Knob{Cgroup: path, File: node.FileCPUMax}].(node.CPUMax)
		memory, _ := s.Knobs.Now[node.Knob{Cgroup: path, File: node.FileMemory}].(node.Memory)
		all[path] = containerLimits{cpu.Quota, memory.Max}
	}
	return all
}

// TestALabelPutsBackWhatWasWritten lets a pod be left alone after the first tick.
// The second tick must release each of its files, and set none of them, and none
// of a cgroup that contains it.
func TestALabelPutsBackWhatWasWritten(t *testing.T) {
	batch := func(name string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{kube.LabelQOSClass: "BE"}}}
		amounts := corev1.ResourceList{kube.BatchCPU: resource.MustParse("1500"), kube.BatchMemory: resource.MustParse("1Gi")}
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts}}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBestEffort, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://" + name}}}
		return p
	}
	web := batch("web")
	web.Labels[kube.LabelQOSClass], web.Status.QOSClass = "LS", corev1.PodQOSBurstable
	web.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	pods := []corev1.Pod{batch("a"), batch("b"), web}
	var l kube.Layout
	config := policy.Config{CPUQOS: isolation.Config{Enable: true}}
	s := node.Snapshot{At: time.Unix(1, 0), Knobs: node.Knobs{Kernel: node.Kernel{CgroupVersion: 2, PageSize: 4096}, Now: map[node.Knob]node.Value{}, Before: map[node.Knob]node.Value{}}}
	for _, path := range []node.CgroupPath{l.QOS(corev1.PodQOSBestEffort), l.Pod(&pods[0]), l.Container(l.Pod(&pods[0]), "a"), l.Pod(&pods[1]), l.Container(l.Pod(&pods[1]), "b")} {
		s.Knobs.Now[node.Knob{Cgroup: path, File: node.FileMemory}] = node.NoMemoryLimit
		s.Knobs.Now[node.Knob{Cgroup: path, File: node.FileCPUMax}] = node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
	}
	everywhere := func(node.CgroupPath) bool { return true }
	decide := func(state policy.State) (policy.State, []plan.Want) {
		s.Workloads, _ = kube.Workloads(pods, l, everywhere)
		return policy.Decide(config, state, s)
	}
	state, wants := decide(policy.State{})
	written := 0
	alone := l.Pod(&pods[1])
	for _, w := range wants {
		if w.Intent == plan.Set {
			s.Knobs.Before[w.Knob] = s.Knobs.Now[w.Knob]
			s.Knobs.Now[w.Knob] = w.Value
			if alone.Contains(w.Knob.Cgroup) {
				written++
			}
		}
	}
	if written < 3 {
		t.Fatalf("the first tick sets %d files of the pod: the test has nothing to put back", written)
	}
	pods[1].Labels[kube.LabelIgnore] = "true"
	s.At = s.At.Add(time.Second)
	_, wants = decide(state)
	released := 0
	for _, w := range wants {
		switch inside := alone.Contains(w.Knob.Cgroup); {
		case inside && w.Intent == plan.Release:
			released++
		case inside || w.Knob.Cgroup.Contains(alone) && w.Intent == plan.Set:
			t.Errorf("%s %v %v: %s", w.Intent, w.Knob, w.Value, w.Reason)
		}
	}
	if released != written {
		t.Errorf("%d files are released, and %d were written", released, written)
	}
}

// withLimits replaces the limits of a container (own) by those that the runtime sets (set).
func withLimits(own containerLimits, set nri.Limits) containerLimits {
	if set.Quota != nil {
		if own.quota = node.NoQuota; *set.Quota >= 0 {
			own.quota = time.Duration(*set.Quota) * time.Microsecond * node.DefaultPeriod / (time.Duration(*set.Period) * time.Microsecond)
		}
	}
	if set.Memory != nil {
		if own.memory = unit.MaxBytes; *set.Memory >= 0 {
			own.memory = unit.Bytes(*set.Memory)
		}
	}
	return own
}

// checkWithoutSpec computes the limits from the annotations of the webhook,
// before the kubelet lists the pod. Each limit must equal the limit that is
// computed from the spec.
func checkWithoutSpec(t *testing.T, p corev1.Pod, name string, want nri.Limits) {
	t.Helper()
	spec := map[string]map[string]corev1.ResourceRequirements{"containers": {}}
	for _, c := range p.Spec.Containers {
		batch := corev1.ResourceRequirements{Requests: batchOf(c.Resources.Requests), Limits: batchOf(c.Resources.Limits)}
		if len(batch.Requests)+len(batch.Limits) > 0 {
			spec["containers"][c.Name] = batch
		}
	}
	if len(spec["containers"]) == 0 || kube.Class(&p) != node.BE {
		return
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	said := string(text)
	known := podOf(nri.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Labels: p.Labels, Annotations: map[string]string{kube.AnnotationExtended: said}})
	got, _, _ := limits(kube.Starting(known, name, false))
	if got.Quota != nil && (want.Quota == nil || *got.Quota != *want.Quota) || got.Memory != nil && (want.Memory == nil || *got.Memory != *want.Memory) {
		t.Fatalf("container %s: by the annotation %s NRI sets %+v, by the spec %+v", name, said, got, want)
	}
}

func batchOf(l corev1.ResourceList) corev1.ResourceList {
	batch := corev1.ResourceList{}
	for _, name := range kube.BatchNames() {
		if v, is := l[name]; is {
			batch[name] = v
		}
	}
	return batch
}
