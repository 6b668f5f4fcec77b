package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/containerstart"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/decide/cpus/hold"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAPodDeletedByForceGivesItsCPUsUp deletes a pod by force while its
// processes still run. The next pod has a contract for the same CPUs, and must
// get them in the first tick that sees it. A kubelet that has just started may
// omit a pod from its list; such a pod must not count as deleted. A static pod
// must never count as deleted, even if no list has it.
func TestAPodDeletedByForceGivesItsCPUsUp(t *testing.T) {
	born := time.Unix(1_700_000_000, 0)
	pod := func(name string, age time.Duration, source string) corev1.Pod {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(born.Add(-age)), Labels: map[string]string{kube.LabelQOSClass: "LSE"},
				Annotations: map[string]string{"kubernetes.io/config.source": source, kube.AnnotationResourceStatus: `{"cpuset":"2-3"}`},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}}},
		}
	}
	db, next, older := pod("db", time.Hour, "api"), pod("next", 0, "api"), pod("older", 2*time.Hour, "api")
	static, same := pod("static", 0, "file"), pod("same", time.Hour, "api")
	for _, p := range []*corev1.Pod{&older, &static, &same} {
		p.Labels, p.Annotations[kube.AnnotationResourceStatus] = nil, "{}"
	}
	file, mirror, byAPI := pod("db", 0, "file"), pod("db", time.Hour, "file"), pod("db", time.Hour, "")
	file.CreationTimestamp = metav1.Time{}
	mirror.Annotations[corev1.MirrorPodAnnotationKey] = "8f3e" // the annotation contains the UID of the static pod
	for name, x := range map[string]struct {
		pod  corev1.Pod // the next list does not contain this pod
		told []corev1.Pod
		from string
		want string // the pod that has CPUs 2-3 in the next tick
	}{
		"the kubelet lists the next pod":             {db, []corev1.Pod{next}, "kubelet", "shop/next"},
		"the API server lists all pods":              {db, []corev1.Pod{older}, "API server", ""},
		"a kubelet that has just started lists none": {db, nil, "kubelet", "shop/db"},
		"it lists a static pod":                      {db, []corev1.Pod{static}, "kubelet", "shop/db"},
		"it lists an older pod":                      {db, []corev1.Pod{older}, "kubelet", "shop/db"},
		"it lists a pod of the same second":          {db, []corev1.Pod{same}, "kubelet", "shop/db"},
		"the API server listed both pods":            {byAPI, []corev1.Pod{next}, "API server", "shop/next"},
		"the kubelet lacks a static pod":             {file, []corev1.Pod{next}, "kubelet", "shop/db"},
		"the API server lacks a static pod":          {file, []corev1.Pod{next}, "API server", "shop/db"},
		"the API server lacks the mirror of one":     {mirror, []corev1.Pod{next}, "API server", "shop/db"},
		"the kubelet lacks the mirror of one":        {mirror, []corev1.Pod{next}, "kubelet", "shop/db"},
	} {
		c := &Follower{starting: containerstart.New(func() {}), lives: func(node.CgroupPath) bool { return true }}
		var state policy.State
		var wants []plan.Want
		tick := func(from string, pods []corev1.Pod) {
			c.take(kubelet.Known{At: time.Now(), From: from, Pods: pods})
			all, _ := kube.Workloads(c.last.Pods, kube.Layout{}, func(node.CgroupPath) bool { return true })
			c.giveUp(all, c.podsByCgroup(kube.Layout{}))
			s := node.Snapshot{At: time.Unix(1, 0), Workloads: all, Knobs: node.Knobs{Kernel: node.Kernel{CgroupVersion: 2}, Now: map[node.Knob]node.Value{}}}
			for i := range 8 {
				s.Topology.CPUs = append(s.Topology.CPUs, node.LogicalCPU{ID: unit.CPU(i), Core: node.CoreID(i)})
			}
			for _, w := range all {
				s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileCPUs}] = node.CPUs{}
			}
			state, wants = policy.Decide(policy.Config{}, state, s)
		}
		tick("kubelet", []corev1.Pod{x.pod})
		tick(x.from, x.told)
		got := ""
		for id, a := range state.CPUs.Allocations {
			if a.CPUs == unit.CPUSetOf(2, 3) {
				got += string(id)
			}
		}
		if got != x.want {
			t.Errorf("%s: %q has the CPUs of the deleted pod, want %q; all: %v", name, got, x.want, state.CPUs.Allocations)
		}
		for _, w := range wants {
			if v, is := w.Value.(node.CPUs); is && x.want == "shop/next" && w.Knob.Cgroup == (kube.Layout{}).Pod(&x.pod) && !v.Set.Intersect(unit.CPUSetOf(2, 3)).Empty() {
				t.Errorf("the processes of the deleted pod may run on CPUs %v", v.Set)
			}
		}
		if len(wants) == 0 {
			t.Errorf("%s: nothing is wanted", name)
		}
	}
}

// TestTenonBindsNoCPUsBesideAnotherBinder runs one pod of each kind that
// demands CPUs, on a node whose kubelet or driver binds CPUs. Tenon must bind
// none of these pods. The report must name the component that binds CPUs, so
// that no scheduler chooses CPUs of this node.
func TestTenonBindsNoCPUsBesideAnotherBinder(t *testing.T) {
	own := node.Overrides{CPUs: node.CPUOverride{PodRequest: cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 2}}}}
	for _, c := range []struct {
		facts  kubelet.Facts
		name   string
		reason string
	}{
		{kubelet.Facts{CPUManagerPolicy: "none"}, "", ""},
		{kubelet.Facts{CPUManagerPolicy: "static"}, "static", "the kubelet binds CPUs here (cpuManagerPolicy: static)"},
		{kubelet.Facts{CPUManagerPolicy: "none", CPUDriver: "dra.cpu"}, "dra", "the driver dra.cpu binds CPUs here"},
	} {
		pods := []node.Workload{{ID: "a/rt", Class: node.LSE, CPURequest: node.Some[unit.MilliCPU](2000)}, {ID: "a/pi", Class: node.LS, Overrides: own}, {ID: "a/web", Class: node.LS}}
		remarks := unbind(pods, c.facts)
		name, _ := binder(c.facts)
		demand := slices.ContainsFunc(pods, func(w node.Workload) bool { return hold.Demands(&w) })
		var p policy.Config
		shareCPUs(&p, c.facts)
		if bound := c.name != ""; name != c.name || demand == bound || p.NodeCPUs.CPUSetsManagedExternally != bound || bound && len(remarks) != 2 {
			t.Errorf("%+v: manager %q, %q, pods %+v", c.facts, name, remarks, pods)
		}
		for _, r := range remarks {
			if !strings.Contains(r, c.reason) {
				t.Errorf("%+v: remark %q does not say %q", c.facts, r, c.reason)
			}
		}
	}
}
