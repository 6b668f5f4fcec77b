package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	pathAllPods = "/api/v1/pods"
	pathMetrics = "/apis/metrics.k8s.io/v1beta1/pods"
)

// jobPod makes a pod of a Job that requests 2 CPUs and 1 GiB, and runs since the middle of
// the week of reportOf.
func jobPod(name, nodeName string, change func(*corev1.Pod)) corev1.Pod {
	middle := metav1.Unix((29_000_160+7*24*60/2)*60, 0)
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "etl", OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", Controller: new(true)}}}}
	p.Spec.NodeName, p.Status.StartTime, p.Status.Phase = nodeName, &middle, corev1.PodRunning
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}}}}
	if nodeName == "" {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
	if change != nil {
		change(&p)
	}
	return p
}

// ended makes a pod one that ended after a number of hours, or did not say when.
func ended(hours int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		if hours > 0 {
			at := metav1.NewTime(p.Status.StartTime.Add(time.Duration(hours) * time.Hour))
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at}}}}
		}
	}
}

// hangs makes a pod one that has a node and no image.
func hangs(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }

func listOfPods(t *testing.T, pods ...corev1.Pod) string {
	t.Helper()
	return jsonOf(t, corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: pods})
}

// excluding are webhooks whose namespace is tenon-system, and which leave out tools.
const excluding = `{"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "tenon-manager"}, "webhooks": [
	{"name": "all", "clientConfig": {"service": {"namespace": "tenon-system", "name": "tenon-manager"}}},
	{"name": "some", "namespaceSelector": {"matchExpressions": [{"key": "tenon.sh/ignore", "operator": "NotIn", "values": ["etl"]},
		{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["etl"]}, {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["tools"]}]}}]}`

// podsOfTools has a pod that counts, and one in each of the namespaces of excluding.
func podsOfTools(t *testing.T) string {
	t.Helper()
	in := func(namespace string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = namespace } }
	return listOfPods(t, jobPod("runs", "node-1", nil), jobPod("a", "node-1", in("tenon-system")), jobPod("b", "node-1", in("tools")))
}

func podsOfJobs(t *testing.T) string {
	t.Helper()
	return listOfPods(t,
		jobPod("runs", "node-1", nil),
		jobPod("ended", "node-2", ended(21)), // an eighth of the week
		jobPod("lost", "node-2", ended(0)),
		jobPod("waits", "", nil),
		// These are no services of which a Job could make batch work, or not on a node that counts.
		jobPod("silent", "node-3", nil),
		jobPod("be", "node-1", func(p *corev1.Pod) { p.Labels = map[string]string{"koordinator.sh/qosClass": "BE"} }),
		jobPod("ls", "node-1", func(p *corev1.Pod) { p.Labels = map[string]string{"koordinator.sh/qosClass": "LS"} }),
		jobPod("alone", "node-1", func(p *corev1.Pod) { p.Labels = map[string]string{"tenon.sh/ignore": "true"} }),
		jobPod("alone-too", "node-1", func(p *corev1.Pod) { p.Namespace = "left" }),
		jobPod("of-the-cluster", "node-1", func(p *corev1.Pod) { p.Namespace = "kube-system" }),
		jobPod("batch", "node-1", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["kubernetes.io/batch-cpu"] = resource.MustParse("2000")
		}),
		jobPod("no-requests", "node-1", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }),
		jobPod("deployment", "node-1", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }),
		jobPod("another-job", "node-1", func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "batch.volcano.sh/v1alpha1" }),
	)
}

func jobPaths(t *testing.T) map[string]string {
	t.Helper()
	paths := fleetPaths(t)
	paths[pathAllPods] = podsOfJobs(t)
	paths[pathNamespaces] = `{"kind": "NamespaceList", "apiVersion": "v1", "items": [{"metadata": {"name": "left", "labels": {"tenon.sh/ignore": "true"}}}, {"metadata": {"name": "etl", "labels": {"tenon.sh/ignore": "no"}}}]}`
	paths[pathMetrics] = `{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [{"metadata": {"name": "runs", "namespace": "etl"}, "containers": [{"usage": {"cpu": "1200m"}}, {"usage": {"cpu": "99999999n"}}]}, {"metadata": {"name": "runs", "namespace": "other"}, "containers": [{"usage": {"cpu": "7"}}]}]}`
	return paths
}

// TestTheReportCountsWhatJobsRequested has a pod for half of the week and one for an eighth:
// 1.25 CPUs on average.
func TestTheReportCountsWhatJobsRequested(t *testing.T) {
	paths := jobPaths(t)
	for name, c := range map[string]struct {
		paths map[string]string
		line  string
		want  []string
		not   []string
	}{
		"all": {paths, "report", []string{"requested 1.2 CPUs and 640 MiB of memory on average over this time, 30.0 CPU-hours a day: 2 pods.", "If they ran evenly over the day, 1.2 CPUs and 640 MiB of it would fit into the room of 95% of the time",
			"Now running: 1 pod with 2.0 CPUs requested; they use 1.3.", "Waiting for a node: 1 pod with 2.0 CPUs", "ended pods that do not say when: 1.", "no saving in nodes is counted. tenon report --prometheus knows it"}, []string{"it is not known which work"}},
		"a node":                         {paths, "report --node node-2", []string{"requested 0.2 CPUs and 128 MiB", ": 1 pod."}, []string{"Waiting", "Now running"}},
		"no metrics-server":              {with(paths, pathMetrics, refusal(404, "NotFound", "no")), "report", []string{"Now running: 1 pod with 2.0 CPUs requested; what they use is not known."}, nil},
		"a pod is too young for metrics": {with(paths, pathMetrics, `{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": []}`), "report", []string{"what they use is not known."}, nil},
		"no Jobs":                        {with(paths, pathAllPods, `{"kind": "PodList", "apiVersion": "v1", "items": []}`), "report", []string{"On these nodes, in this time, no pod of a Job is known"}, []string{"Pods of Jobs", "API server"}},
		"Jobs elsewhere":                 {with(paths, pathAllPods, listOfPods(t, jobPod("runs", "node-1", nil))), "report --node node-2", []string{"On this node, in this time, no pod of a Job is known"}, []string{"API server"}},
		"left out by the webhooks":       {with(paths, pathAllPods, podsOfTools(t), pathHooks, excluding), "report", []string{"Now running: 1 pod with 2.0 CPUs requested; they use 1.3."}, nil},
		"no right to read webhooks":      {with(paths, pathAllPods, podsOfTools(t), pathHooks, refusal(403, "Forbidden", "no")), "report", []string{"Now running: 3 pods"}, nil},
		"the webhooks were not read":     {with(paths, pathHooks, refusal(500, "InternalError", "no")), "report", []string{"Jobs were not read: webhooks of tenon-manager"}, []string{"requested 1"}},
		"a pod hangs":                    {with(paths, pathAllPods, listOfPods(t, jobPod("runs", "node-1", nil), jobPod("hangs", "node-2", hangs))), "report", []string{"Now running: 1 pod with 2.0 CPUs requested; they use 1.3.", "On a node and not running yet: 1 pod with 2.0 CPUs requested."}, []string{"use is not known"}},
		"a pod fails again and again":    {with(paths, pathAllPods, listOfPods(t, jobPod("runs", "node-1", nil), jobPod("fails", "node-2", nil))), "report", []string{"Now running: 2 pods with 4.0 CPUs requested; the use of 1 is not known, and that of the others is 1.3."}, nil},
		"no right":                       {with(paths, pathAllPods, refusal(403, "Forbidden", "no")), "report", []string{"Jobs were not read: you may not list pods of all namespaces."}, []string{"requested 1"}},
		"no namespaces":                  {with(paths, pathNamespaces, refusal(403, "Forbidden", "no")), "report", []string{"Jobs were not read: you may not list namespaces."}, []string{"requested 1"}},
		"past promises":                  {with(paths, pathAllPods, refusal(403, "Forbidden", "no")), "report --kept", nil, []string{"Jobs"}},
		"in a page":                      {paths, "report --html -", []string{"requested 1.2 CPUs"}, nil},
	} {
		out, err := kubectl(t, c.paths, strings.Fields(c.line)...)
		words := strings.Join(strings.Fields(out), " ")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(words, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, out)
			}
		}
		for _, not := range c.not {
			if strings.Contains(words, not) {
				t.Errorf("%s: %q is in\n%s", name, not, out)
			}
		}
	}
}

// TestWhatJobsRequestedIsData also checks that what could not be read is not 0.
func TestWhatJobsRequestedIsData(t *testing.T) {
	paths := jobPaths(t)
	read := func(paths map[string]string) (data struct {
		Jobs   *prospect.Jobs
		Unread string `json:"jobs_unread"`
	}) {
		out, err := kubectl(t, paths, "report", "-o", "json")
		_, text, _ := strings.Cut(out, "{")
		if err != nil || json.Unmarshal([]byte("{"+text), &data) != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return data
	}
	got := read(paths)
	if got.Jobs == nil || got.Unread != "" || fmt.Sprint(*got.Jobs) != fmt.Sprint(prospect.Jobs{
		Pods: 2, CPU: 1250, Memory: 640 << 20, Untimed: 1, Running: 1, RunningCPU: 2000, Used: got.Jobs.Used, Waiting: 1, WaitingCPU: 2000,
	}) || got.Jobs.Used.Or(0) != unit.MilliCPU(1300) {
		t.Errorf("%+v", got)
	}
	if got := read(with(paths, pathAllPods, refusal(403, "Forbidden", "no"))); got.Jobs != nil || got.Unread == "" {
		t.Errorf("without the right: %+v", got)
	}
}
