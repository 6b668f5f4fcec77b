package host_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// aPod returns a pod. Its containers have the given limits, and requests of the
// same amounts.
func aPod(name string, class node.Class, limits map[string]corev1.ResourceList) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-pod-1", Labels: map[string]string{kube.LabelQOSClass: string(class)}}}
	p.Status.Phase = corev1.PodRunning
	for c, list := range limits {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Resources: corev1.ResourceRequirements{Requests: list, Limits: list}})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c, ContainerID: "containerd://" + c})
	}
	return p
}

// TestPodsGetTheirKnobsFromTheRunningKernel sets the knobs of pods and their
// containers in a tree like that of the kubelet. It runs three ticks, resizes a
// pod, and then releases the knobs. The kernel must refuse no step.
func TestPodsGetTheirKnobsFromTheRunningKernel(t *testing.T) {
	m := open(t, false)
	layout := kube.Layout{Root: groupName("kubelet")}
	t.Cleanup(func() { do(t, m.tree.RemoveAll(layout.Root)) })
	batch := corev1.ResourceList{kube.BatchCPU: resource.MustParse("600"), kube.BatchMemory: resource.MustParse("64Mi")}
	native := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	encode := aPod("encode", node.BE, map[string]corev1.ResourceList{"ffmpeg": batch, "upload": batch})
	web := aPod("web", node.LS, map[string]corev1.ResourceList{"nginx": native})
	web.Annotations = map[string]string{kube.AnnotationCPUBurst: `{"policy":"cpuBurstOnly","cpuBurstPercent":50}`}
	pods := []corev1.Pod{encode, web}
	for i := range pods {
		p := layout.Pod(&pods[i])
		for _, c := range pods[i].Spec.Containers {
			do(t, m.tree.Make(string(p.Join(c.Name))))
		}
	}
	// kubelet writes a quota as the kubelet does.
	kubelet := func(p node.CgroupPath, v cgroup.CPUMax) { do(t, m.tree.WriteCPUMax(string(p), v)) }
	half := cgroup.CPUMax{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}
	kubelet(layout.Pod(&pods[1]), half)
	kubelet(layout.Pod(&pods[1]).Join("nginx"), half)
	level := layout.QOS(corev1.PodQOSBestEffort)
	do(t, m.tree.WriteCPUWeight(string(level), cgroup.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}))

	c := policy.Config{CPUQOS: isolation.Config{Enable: true, Mechanism: node.MechanismIdle}}
	var st policy.State
	turn := func() {
		t.Helper()
		workloads, remarks := kube.Workloads(pods, layout, func(p node.CgroupPath) bool { return m.tree.Exists(string(p)) })
		if len(remarks) > 0 {
			t.Fatalf("remarks %q", remarks)
		}
		m.ManageOnly(workloads)
		s, err := m.Snapshot(t.Context())
		do(t, err)
		var wants []plan.Want
		st, wants = policy.Decide(c, st, s)
		for _, step := range plan.Diff(s.Knobs, wants) {
			if err := m.Apply(t.Context(), step); err != nil {
				t.Errorf("%v: %v", step, err)
			}
		}
	}
	be, ls := layout.Pod(&pods[0]), layout.Pod(&pods[1])
	is := func(p node.CgroupPath, f node.File, want node.Value) {
		t.Helper()
		got, err := m.Knob(node.Knob{Cgroup: p, File: f})
		if err != nil || got != want.Round(m.Kernel()) {
			t.Errorf("%s %s is %v (%v), want %v", p, f, got, err, want)
		}
	}
	memory := func(b unit.Bytes) node.Value { return node.Memory{High: unit.MaxBytes, Max: b} }
	idle := node.CPUWeight{Idle: true}
	if !m.Capabilities().Has(node.FeatureCPUIdle) {
		idle = node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}
	}
	saved := node.CPUMax{Quota: 50 * time.Millisecond, Period: 100 * time.Millisecond}
	burst := saved
	if m.Capabilities().Has(node.FeatureCPUBurst) {
		burst.Burst = 25 * time.Millisecond
	}
	for range 3 {
		turn()
		// The kubelet writes these weights each minute. The kernel refuses such
		// a write if the group is idle.
		do(t, m.tree.WriteCPUWeight(string(level), cgroup.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)}))
		is(be, node.FileCPUMax, node.Limit(1200))
		is(be, node.FileCPUWeight, idle)
		is(be, node.FileMemory, memory(128<<20))
		is(level, node.FileCPUWeight, node.CPUWeight{Weight: unit.WeightOfShares(unit.MinShares)})
		for _, name := range []string{"ffmpeg", "upload"} {
			is(be.Join(name), node.FileCPUMax, node.Limit(600))
			is(be.Join(name), node.FileCPUWeight, node.CPUWeight{Weight: kube.Weight(600)})
			is(be.Join(name), node.FileMemory, memory(64<<20))
		}
		is(ls, node.FileCPUMax, burst)
		is(ls.Join("nginx"), node.FileCPUMax, burst)
	}

	// The owner resizes the service to one CPU. Tenon's burst must follow.
	pods[1].Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	turn()
	saved.Quota, burst.Quota, burst.Burst = 100*time.Millisecond, 100*time.Millisecond, 2*burst.Burst
	is(ls, node.FileCPUMax, burst)
	is(ls.Join("nginx"), node.FileCPUMax, burst)

	// From now on, no policy manages the pods.
	c, pods = policy.Config{}, nil
	m.ManageOnly(nil)
	if _, err := m.Restore(t.Context()); err != nil {
		t.Error(err)
	}
	none := node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}
	is(be, node.FileCPUMax, none)
	is(be.Join("ffmpeg"), node.FileCPUMax, none)
	is(be, node.FileMemory, memory(unit.MaxBytes))
	is(be.Join("upload"), node.FileCPUWeight, node.CPUWeight{Weight: unit.WeightOf(100)})
	saved.Quota = 50 * time.Millisecond
	is(ls, node.FileCPUMax, saved)
}
