package kube

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A podChange is a function that changes a pod for a test.
type podChange func(*corev1.Pod)

func pod(name string, made ...podChange) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}, Annotations: map[string]string{}}}
	p.Status.Phase = corev1.PodRunning
	for _, m := range made {
		m(&p)
	}
	return p
}

func label(key, value string) podChange { return func(p *corev1.Pod) { p.Labels[key] = value } }
func annotation(key, value string) podChange {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}
func priority(n int32) podChange { return func(p *corev1.Pod) { p.Spec.Priority = &n } }
func be(p *corev1.Pod)           { p.Labels[LabelQOSClass] = "BE" }

// list reads a resource list such as "cpu=500m memory=1Gi".
func list(text string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for _, word := range strings.Fields(text) {
		name, amount, _ := strings.Cut(word, "=")
		if full := map[string]string{"batch-cpu": "kubernetes.io/batch-cpu", "batch-memory": "kubernetes.io/batch-memory", "mid-cpu": "kubernetes.io/mid-cpu", "mid-memory": "kubernetes.io/mid-memory"}[name]; full != "" {
			name = full
		}
		l[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return l
}

func container(name, requests, limits string) podChange {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + p.Name + name})
	}
}

func initContainer(name, requests, limits string, sidecar bool) podChange {
	return func(p *corev1.Pod) {
		c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}}
		if sidecar {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

func overhead(text string) podChange { return func(p *corev1.Pod) { p.Spec.Overhead = list(text) } }

func everywhere(node.CgroupPath) bool { return true }

var exact = cmp.Options{cmpopts.EquateEmpty(), cmp.Exporter(func(reflect.Type) bool { return true })}

// onePod returns the workload of a single pod.
func onePod(t *testing.T, p corev1.Pod) node.Workload {
	t.Helper()
	all, remarks := Workloads([]corev1.Pod{p}, Layout{}, everywhere)
	if len(all) != 1 || len(remarks) > 0 {
		t.Fatalf("%d workloads, remarks %q; want one and none", len(all), remarks)
	}
	return all[0]
}

func TestABatchPodIsBoundedByItsBatchResources(t *testing.T) {
	w := onePod(t, pod("encode", be, priority(5500), label(LabelSubPriority, "7"), annotation(AnnotationEvictionPriority, "-3"),
		container("ffmpeg", "", "batch-cpu=2k batch-memory=4Gi"), container("upload", "", "batch-cpu=500 batch-memory=1Gi")))
	want := node.Workload{
		ID: "shop/encode", Pod: true, Class: node.BE, Rule: "koordinator.sh/qosClass=BE",
		Cgroup: "kubepods/besteffort/poduid-encode", ContentionRoot: "kubepods/besteffort", IdleCgroup: "kubepods/besteffort/poduid-encode",
		CPURequest: node.Some(unit.MilliCPU(2500)), CPULimit: node.Some(unit.MilliCPU(2500)),
		MemoryRequest: node.Some(unit.Bytes(5 << 30)), MemoryLimit: node.Some(unit.Bytes(5 << 30)),
		Priority: 5500, SubPriority: 7, EvictionPriority: -3,
		Containers: []node.Container{
			{
				Name: "ffmpeg", Cgroup: "kubepods/besteffort/poduid-encode/encodeffmpeg",
				CPURequest: node.Some(unit.MilliCPU(2000)), CPULimit: node.Some(unit.MilliCPU(2000)),
				MemoryRequest: node.Some(unit.Bytes(4 << 30)), MemoryLimit: node.Some(unit.Bytes(4 << 30)), Weight: node.Some(unit.WeightOfShares(2048)),
			},
			{
				Name: "upload", Cgroup: "kubepods/besteffort/poduid-encode/encodeupload",
				CPURequest: node.Some(unit.MilliCPU(500)), CPULimit: node.Some(unit.MilliCPU(500)),
				MemoryRequest: node.Some(unit.Bytes(1 << 30)), MemoryLimit: node.Some(unit.Bytes(1 << 30)), Weight: node.Some(unit.WeightOfShares(512)),
			},
		},
	}
	if diff := cmp.Diff(want, w, exact); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLimitsOfServicesAreTheKubelets(t *testing.T) {
	w := onePod(t, pod("web", container("nginx", "cpu=500m memory=1Gi", "cpu=2 memory=2Gi")))
	if w.Class != node.LS || !w.CPUManagedExternally || !w.MemoryManagedExternally || w.Weight.Known() {
		t.Errorf("class %s, managed externally %v %v, weight %v: want LS, whose limits the kubelet enforces", w.Class, w.CPUManagedExternally, w.MemoryManagedExternally, w.Weight)
	}
	if w.CPULimit != node.Some(unit.CPUs(2)) || w.CPURequest != node.Some(unit.MilliCPU(500)) || len(w.Containers) != 1 {
		t.Errorf("limit %v, request %v, %d containers", w.CPULimit, w.CPURequest, len(w.Containers))
	}
}

// The cgroup of a BE pod with native cpu is among those of services. In
// Koordinator, CPU suppress does not apply to such a pod.
func TestABEPodWithNativeCPUMeetsServicesByItself(t *testing.T) {
	w := onePod(t, pod("encode", be, container("ffmpeg", "cpu=1 memory=1Gi", "")))
	if w.Cgroup != "kubepods/burstable/poduid-encode" || w.ContentionRoot != w.Cgroup || w.IdleCgroup != "" || !w.CPUManagedExternally {
		t.Errorf("cgroup %s has contention root %s, idle cgroup %q, CPU managed externally %v", w.Cgroup, w.ContentionRoot, w.IdleCgroup, w.CPUManagedExternally)
	}
}

func TestWhereBestEffortPodsMeetServices(t *testing.T) {
	encode, web := pod("encode", be, container("c", "", "batch-cpu=1k")), pod("web", container("c", "cpu=1", ""))
	odd := pod("odd", label(LabelQOSClass, "LS"), container("c", "", ""))
	proxy := pod("proxy", priority(2000001000), container("c", "", ""))
	for name, c := range map[string]struct {
		pods   []corev1.Pod
		layout Layout
		meet   node.CgroupPath
		yields node.CgroupPath
	}{
		"alone in their cgroup":                           {[]corev1.Pod{encode, web}, Layout{}, "kubepods/besteffort", "kubepods/besteffort/poduid-encode"},
		"and its weight may be changed":                   {[]corev1.Pod{encode, web}, Layout{QOSIdle: true}, "kubepods/besteffort", ""},
		"beside a service without requests":               {[]corev1.Pod{encode, odd}, Layout{}, "kubepods/besteffort/poduid-encode", ""},
		"beside a pod that the cluster cannot do without": {[]corev1.Pod{encode, proxy}, Layout{}, "kubepods/besteffort/poduid-encode", ""},
	} {
		all, _ := Workloads(c.pods, c.layout, everywhere)
		i := slices.IndexFunc(all, func(w node.Workload) bool { return w.ID == "shop/encode" })
		if i < 0 || all[i].ContentionRoot != c.meet || all[i].IdleCgroup != c.yields {
			t.Errorf("%s: %+v; want contention root %s, idle cgroup %s", name, all[i], c.meet, c.yields)
		}
	}
}

// In Koordinator, pods that have ended keep their CPUs.
func TestPodsThatHaveEndedAreNoWorkloads(t *testing.T) {
	done, failed, run := pod("a"), pod("b"), pod("c")
	done.Status.Phase, failed.Status.Phase = corev1.PodSucceeded, corev1.PodFailed
	all, remarks := Workloads([]corev1.Pod{done, failed, run}, Layout{}, everywhere)
	if len(all) != 1 || all[0].ID != "shop/c" || len(remarks) > 0 {
		t.Errorf("%+v, %q", all, remarks)
	}
}

func TestPodsWithoutACgroupAreNoWorkloadsYet(t *testing.T) {
	pods := []corev1.Pod{pod("a"), pod("b")}
	all, remarks := Workloads(pods, Layout{}, func(p node.CgroupPath) bool { return strings.Contains(string(p), "uid-b") })
	if len(all) != 1 || all[0].ID != "shop/b" || len(remarks) > 0 {
		t.Errorf("%+v, %q", all, remarks)
	}
	all, remarks = Workloads(pods, Layout{}, func(node.CgroupPath) bool { return false })
	if len(all) != 0 || len(remarks) > 0 { // whether a container runs is in the status of its pod: see nodereport.Containers
		t.Errorf("no cgroup at all: %d workloads, remarks %q", len(all), remarks)
	}
}

// TestContainersBesideTheirPodAreFound reads pods of a kubelet with the driver
// systemd whose runtime has the driver cgroupfs. The kubelet makes the cgroups of
// the pods, and the runtime makes the cgroups of the containers elsewhere.
func TestContainersBesideTheirPodAreFound(t *testing.T) {
	const slice, id = "kubepods-besteffort-poduid_a.slice", "95f5f3fbc401447e"
	for name, c := range map[string]struct{ runtime, at string }{
		"below containerd, v1":   {"containerd", "system.slice/containerd.service/" + slice + ":cri-containerd:" + id},
		"beside containerd, v2":  {"containerd", "system.slice/" + slice + ":cri-containerd:" + id},
		"below k3s":              {"containerd", "system.slice/k3s.service/" + slice + ":cri-containerd:" + id},
		"below the root":         {"docker", slice + ":docker:" + id},
		"where it belongs":       {"containerd", "kubepods.slice/kubepods-besteffort.slice/" + slice + "/cri-containerd-" + id + ".scope"},
		"in an unknown place":    {"containerd", ""},
		"an id with a separator": {"containerd", "../x"},
	} {
		p := pod("a")
		p.Spec.Containers = []corev1.Container{{Name: "c"}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: c.runtime + "://" + id}}
		l := Layout{Systemd: true}
		there := map[node.CgroupPath]bool{l.Pod(&p): true, node.CgroupPath(c.at): true}
		all, remarks := Workloads([]corev1.Pod{p}, l, func(c node.CgroupPath) bool { return there[c] })
		var got []string
		for _, part := range all[0].Containers {
			got = append(got, string(part.Cgroup))
		}
		want := []string{c.at}
		if strings.HasPrefix(name, "in an") || strings.HasPrefix(name, "an id") {
			want = nil
		}
		if !slices.Equal(got, want) || len(remarks) > 0 {
			t.Errorf("%s: %q, remarks %q, want %q", name, got, remarks, want)
		}
	}
}

// TestTheOlderOfTwoPodsKeepsItsID starts a pod while the old one with its name ends. All that
// Tenon knows of the old one has its ID.
func TestTheOlderOfTwoPodsKeepsItsID(t *testing.T) {
	old, young := pod("db"), pod("db")
	young.UID = "a-new-uid"
	old.CreationTimestamp, young.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	ids := func(exists func(node.CgroupPath) bool, pods ...corev1.Pod) map[node.WorkloadID]node.CgroupPath {
		all, _ := Workloads(pods, Layout{}, exists)
		cgroups := map[node.WorkloadID]node.CgroupPath{}
		for _, w := range all {
			cgroups[w.ID] = w.Cgroup
		}
		return cgroups
	}
	const oldest, newest = node.CgroupPath("kubepods/besteffort/poduid-db"), node.CgroupPath("kubepods/besteffort/poda-new-uid")
	for name, c := range map[string]struct {
		got, want map[node.WorkloadID]node.CgroupPath
	}{
		"the old one":     {ids(everywhere, old), map[node.WorkloadID]node.CgroupPath{"shop/db": oldest}},
		"both":            {ids(everywhere, young, old), map[node.WorkloadID]node.CgroupPath{"shop/db": oldest, "shop/db/a-new-uid": newest}},
		"the new one":     {ids(everywhere, young), map[node.WorkloadID]node.CgroupPath{"shop/db": newest}},
		"an old one gone": {ids(func(p node.CgroupPath) bool { return p != oldest }, young, old), map[node.WorkloadID]node.CgroupPath{"shop/db": newest}},
	} {
		if !maps.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

// The kubelet lists a static pod under the hash of its file. The API server
// lists the mirror pod instead.
func TestAStaticPodIsOneWorkloadUnderItsHash(t *testing.T) {
	mirror := pod("kube-apiserver", annotation("kubernetes.io/config.mirror", "8f3e"), annotation("kubernetes.io/config.hash", "8f3e"), annotation("kubernetes.io/config.source", "file"))
	mirror.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "n", Controller: new(true)}}
	file := pod("kube-apiserver", annotation("kubernetes.io/config.hash", "8f3e"), annotation("kubernetes.io/config.source", "file"))
	file.UID = "8f3e"
	for name, pods := range map[string][]corev1.Pod{"of the API server": {mirror}, "of the kubelet": {file}, "of both": {mirror, file}} {
		all, _ := Workloads(pods, Layout{}, everywhere)
		if len(all) != 1 || all[0].Cgroup != "kubepods/besteffort/pod8f3e" || all[0].Owner != "" {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

func TestContainersThatTheRuntimeDoesNotKnowHaveNoCgroup(t *testing.T) {
	p := pod("web", container("a", "cpu=1", ""), container("b", "cpu=1", ""), container("c", "cpu=1", ""))
	p.Status.ContainerStatuses[0].ContainerID = ""
	p.Status.ContainerStatuses[1].State.Terminated = &corev1.ContainerStateTerminated{}
	if w := onePod(t, p); len(w.Containers) != 1 || w.Containers[0].Name != "c" {
		t.Errorf("%+v", w.Containers)
	}
}

func TestMixedResourcesAreRemarkedUpon(t *testing.T) {
	for name, c := range map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"batch and native":  {pod("p", be, container("c", "cpu=1 batch-cpu=1k", "")), "pod shop/p: has batch resources and native cpu or memory: want only one kind"},
		"batch of services": {pod("p", label(LabelQOSClass, "LS"), container("c", "", "batch-cpu=1k")), "pod shop/p: has batch resources and class LS: Tenon enforces them only for class BE"},
		"an unknown class":  {pod("p", label(LabelQOSClass, "be")), `pod shop/p: koordinator.sh/qosClass: "be": want one of LSE, LSR, LS, SYSTEM, BE`},
		"a bad annotation":  {pod("p", annotation(AnnotationCPUBurst, `{"cpuBurstPercent":0}`)), "pod shop/p: koordinator.sh/cpuBurst: cpuBurstPercent: 0: want a whole number from 1 to 10000"},
	} {
		_, remarks := Workloads([]corev1.Pod{c.pod}, Layout{}, everywhere)
		if !slices.Equal(remarks, []string{c.want}) {
			t.Errorf("%s: %q; want %q", name, remarks, c.want)
		}
	}
}

// TestPodsWithoutACgroupArrive checks that the requests of a bound pod count
// before the pod has a cgroup. A pod is starting while only some of its
// containers run.
func TestPodsWithoutACgroupArrive(t *testing.T) {
	phase := func(now corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = now } }
	pulled := pod("pulled", container("c", "cpu=20 memory=20Gi", ""), phase(corev1.PodPending))
	batch := pod("batch", label(LabelQOSClass, "BE"), container("c", "", "batch-cpu=1500"), phase(corev1.PodPending))
	partly := pod("partly", container("c", "cpu=1", ""), phase(corev1.PodPending))
	lost := pod("lost", container("c", "cpu=1", ""), phase(corev1.PodRunning))
	ended := pod("ended", container("c", "cpu=1", ""), phase(corev1.PodSucceeded))
	pods := []corev1.Pod{pulled, batch, partly, lost, ended}
	exists := func(p node.CgroupPath) bool { return p == Layout{}.Pod(&partly) }
	arriving := Arriving(pods, Layout{}, exists)
	if len(arriving) != 2 || arriving[0].Class != node.BE || arriving[1].Class != node.LS ||
		arriving[1].CPURequest != node.Some(unit.CPUs(20)) || arriving[1].MemoryRequest != node.Some(unit.Bytes(20<<30)) {
		t.Errorf("arriving: %+v", arriving)
	}
	if all, _ := Workloads(pods, Layout{}, exists); len(all) != 1 || !all[0].Starting {
		t.Errorf("workloads: %+v", all)
	}
}

// TestWhatEndsByItselfIsPassing checks which pods are no services that stay.
func TestWhatEndsByItselfIsPassing(t *testing.T) {
	restart := func(policy corev1.RestartPolicy) podChange {
		return func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }
	}
	for name, x := range map[string]struct {
		pod     corev1.Pod
		passing bool
	}{
		"a service":                {pod("a", restart(corev1.RestartPolicyAlways)), false},
		"a pod without a policy":   {pod("a"), false},
		"a pod of a Job":           {pod("a", restart(corev1.RestartPolicyOnFailure)), true},
		"a pod that runs once":     {pod("a", restart(corev1.RestartPolicyNever)), true},
		"a part of Tenon":          {pod("a", restart(corev1.RestartPolicyAlways), label("app.kubernetes.io/part-of", "tenon")), true},
		"a part of something else": {pod("a", restart(corev1.RestartPolicyAlways), label("app.kubernetes.io/part-of", "shop")), false},
	} {
		all, _ := Workloads([]corev1.Pod{x.pod}, Layout{}, func(node.CgroupPath) bool { return true })
		if len(all) != 1 || all[0].Passing != x.passing {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

// TestTheNextContainerToStartIsKnown checks which CPU limit the container runtime writes
// next. The kubelet starts init containers one after the other, and restarts a container
// by the policy of its pod.
func TestTheNextContainerToStartIsKnown(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := func(why string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why}}
	}
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	states := func(all ...corev1.ContainerState) podChange {
		return func(p *corev1.Pod) {
			for i, st := range all {
				p.Status.ContainerStatuses[i].State = st
			}
		}
	}
	initial := func(st corev1.ContainerState) podChange {
		return func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: "i", State: st})
		}
	}
	policy := func(r corev1.RestartPolicy) podChange { return func(p *corev1.Pod) { p.Spec.RestartPolicy = r } }
	fresh := func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }
	a, b, plain := container("a", "cpu=1", "cpu=2"), container("b", "cpu=1", "cpu=1500m"), container("c", "cpu=1", "")
	start, sidecar := initContainer("i", "cpu=1", "cpu=3", false), initContainer("i", "cpu=1", "cpu=1", true)
	initialized := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue})
	}
	for name, c := range map[string]struct {
		made []podChange
		want unit.MilliCPU // 0: absent
	}{
		"all run":                              {[]podChange{be, a, b, states(running, running)}, 0},
		"created, and not reported":            {[]podChange{be, a, b, states(running, corev1.ContainerState{})}, 0},
		"a new pod":                            {[]podChange{be, a, b, fresh}, 2000},
		"one waits":                            {[]podChange{be, a, b, states(running, waiting("CrashLoopBackOff"))}, 1500},
		"both wait":                            {[]podChange{be, a, b, states(waiting("RunContainerError"), waiting("ContainerCreating"))}, 2000},
		"without a limit":                      {[]podChange{be, a, plain, states(running, waiting("ContainerCreating"))}, 0},
		"it ended, and starts again":           {[]podChange{be, a, b, states(running, ended(0)), policy(corev1.RestartPolicyAlways)}, 1500},
		"it ended well":                        {[]podChange{be, a, b, states(running, ended(0)), policy(corev1.RestartPolicyOnFailure)}, 0},
		"it failed":                            {[]podChange{be, a, b, states(running, ended(1)), policy(corev1.RestartPolicyOnFailure)}, 1500},
		"it failed for good":                   {[]podChange{be, a, b, states(running, ended(1)), policy(corev1.RestartPolicyNever)}, 0},
		"behind an init container that runs":   {[]podChange{be, start, a, initial(running), states(waiting("PodInitializing"))}, 0},
		"the init container starts":            {[]podChange{be, start, a, initial(waiting("PodInitializing")), states(waiting("PodInitializing"))}, 3000},
		"the init container failed":            {[]podChange{be, start, a, initial(ended(1)), states(waiting("PodInitializing"))}, 3000},
		"after the init container":             {[]podChange{be, start, a, initial(ended(0)), states(waiting("PodInitializing"))}, 2000},
		"a sidecar and a container wait":       {[]podChange{be, sidecar, a, initialized, initial(waiting("CrashLoopBackOff")), states(waiting("CrashLoopBackOff"))}, 2000},
		"the pod is being deleted":             {[]podChange{be, a, states(waiting("CrashLoopBackOff")), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }}, 0},
		"a service is not bounded, so no need": {[]podChange{a, states(waiting("CrashLoopBackOff"))}, 0},
	} {
		got, known := onePod(t, pod("job", c.made...)).StartLimit.Value()
		if got != c.want || known != (c.want > 0) {
			t.Errorf("%s: %v %v, want %v", name, got, known, c.want)
		}
	}
}
