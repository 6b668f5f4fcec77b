package podpages

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

// TestAPodIsExplainedWithItsObjective prints the page of a pod with an objective
// for each cause. Batch work must be blamed only for best-effort.
func TestAPodIsExplainedWithItsObjective(t *testing.T) {
	of := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	runner := func(namespace, pod, kind string, ms int64) v1alpha1.ObjectiveRunner {
		return v1alpha1.ObjectiveRunner{Namespace: namespace, Pod: pod, Kind: kind, Time: metav1.Duration{Duration: time.Duration(ms) * time.Millisecond}}
	}
	begun := metav1.NewMicroTime(noon.Add(-50 * time.Second))
	bound := resource.MustParse("750m")
	missed := func(cause string, runners ...v1alpha1.ObjectiveRunner) v1alpha1.ServiceObjective {
		return v1alpha1.ServiceObjective{State: v1alpha1.ObjectiveMissed, Cause: cause, Since: &begun, Measured: of(8389 * time.Microsecond), Waited: of(time.Second), Runners: runners, Periods: 10, ThrottledPeriods: 9}
	}
	both := []v1alpha1.ObjectiveRunner{runner("batch", "train-4", "best-effort", 640), runner("shop", "db", "other-service", 200), runner("", "(other BE)", "best-effort", 70)}
	alone := []v1alpha1.BoundedWork{
		{Namespace: "batch", Pod: "train-4", ServiceNamespace: "shop", Service: "web", CPU: bound, Share: 90, Since: begun},
		{Namespace: "batch", Pod: "train-5", ServiceNamespace: "other", Service: "web", CPU: bound, Share: 90, Since: begun},
	}
	for name, tc := range map[string]struct {
		service v1alpha1.ServiceObjective
		all     v1alpha1.Objectives
		want    string
	}{
		"kept": {v1alpha1.ServiceObjective{State: v1alpha1.ObjectiveKept, Since: &begun, Measured: of(131 * time.Microsecond)}, v1alpha1.Objectives{},
			"It is kept for 40s: 99 of 100 waits ended within 131µs. The node said so 10s ago."},
		"for batch work": {missed("best-effort", both...), v1alpha1.Objectives{BackOff: 500, By: "cpu.max", BECPU: &bound},
			"It is missed for 40s: its threads wait up to 8.4ms (P99). Best-effort work ran during 71 % of the waiting time: batch/train-4 64 %, (other BE) 7 %. All best-effort work of node-1 has at most 0.75 CPUs by cpu.max now. The node said so 10s ago."},
		"for batch work beside a kubelet that binds CPUs": {missed("best-effort", both...), v1alpha1.Objectives{BackOff: 500, By: "cpu.max", BECPU: &bound, Why: "by quota alone"},
			"has at most 0.75 CPUs by cpu.max (by quota alone) now."},
		"for batch work without a bound": {missed("best-effort", both...), v1alpha1.Objectives{BackOff: 500, Why: "no rate yet"},
			"Nothing bounds the best-effort work of node-1 now (no rate yet)."},
		"for batch work that is bounded alone": {missed("best-effort", both...), v1alpha1.Objectives{Bounded: alone},
			"(other BE) 7 %. batch/train-4 alone gives way: it has at most 0.75 CPUs. All other best-effort work keeps its CPU. The node said so 10s ago."},
		"kept because batch work is bounded": {v1alpha1.ServiceObjective{State: v1alpha1.ObjectiveKept, Since: &begun, Measured: of(131 * time.Microsecond)}, v1alpha1.Objectives{Bounded: alone},
			"ended within 131µs. batch/train-4 alone gives way: it has at most 0.75 CPUs. The node said so 10s ago."},
		"for its own limit":    {missed("own-limit", both...), v1alpha1.Objectives{}, "Its own CPU limit stopped it in 9 of 10 periods. Batch work is left alone."},
		"for its own threads":  {missed("own-threads", runner("shop", "web", "own-threads", 830)), v1alpha1.Objectives{}, "Its own threads ran during 83 % of the waiting time: it has more threads to run than CPUs. Batch work is left alone."},
		"for another service":  {missed("other-service", both...), v1alpha1.Objectives{}, "Other services ran during 20 % of the waiting time: shop/db 20 %. Batch work is left alone."},
		"for the system":       {missed("system", runner("", "(kernel)", "system", 900)), v1alpha1.Objectives{}, "The system ran during 90 % of the waiting time: (kernel) 90 %. Batch work is left alone."},
		"for the hypervisor":   {missed("host", both...), v1alpha1.Objectives{}, "Meanwhile the hypervisor ran something else on the CPUs of node-1. Batch work is left alone."},
		"for nothing that ran": {missed("unclear"), v1alpha1.Objectives{}, "For what they waited is not clear. Batch work is left alone."},
		"for unknown work":     {missed("unknown-runner"), v1alpha1.Objectives{By: "cpuset.cpus"}, "Which work ran meanwhile is not measured there, so best-effort work gives way. cpuset.cpus bounds the best-effort work of node-1 now."},
		"unmeasured":           {v1alpha1.ServiceObjective{State: v1alpha1.ObjectiveUndecided, Cause: "unmeasured", Why: "bpf.tracing: no BTF"}, v1alpha1.Objectives{}, "Whether it is kept is not known: node-1 does not measure the waits: bpf.tracing: no BTF."},
		"too few waits":        {v1alpha1.ServiceObjective{State: v1alpha1.ObjectiveUndecided, Cause: "too-few"}, v1alpha1.Objectives{}, "Whether it is kept is not known yet: there were too few waits for a verdict."},
	} {
		t.Run(name, func(t *testing.T) {
			tc.service.Namespace, tc.service.Pod, tc.service.RunQueueDelay = "shop", "web", of(2*time.Millisecond)
			tc.all.Services = []v1alpha1.ServiceObjective{{Namespace: "other", Pod: "web", RunQueueDelay: tc.service.RunQueueDelay, State: "Kept"}, tc.service}
			page := explained(t, `{"runQueueDelay": "2ms"}`, &tc.all)
			if !strings.Contains(page, "Its objective (annotation): 99 of 100 waits of its threads for a CPU end within 2ms.\n") || !strings.Contains(page, tc.want) {
				t.Errorf("the page\n%s\nlacks\n%s", page, tc.want)
			}
			if blames := strings.Contains(page, "Best-effort work ran"); blames != (tc.service.Cause == "best-effort") {
				t.Errorf("blames batch work: %v\n%s", blames, page)
			}
			if page := explained(t, "", &tc.all); !strings.Contains(page, "Its objective (ConfigMap)") {
				t.Errorf("without an annotation:\n%s", page)
			}
			if page := explained(t, `{"runQueueDelay": "5ms"}`, &tc.all); !strings.Contains(page, "Its node has not reported yet whether it is kept.") {
				t.Errorf("with a newer annotation:\n%s", page)
			}
			if page := explained(t, `{}`, &tc.all); strings.Contains(page, "objective") {
				t.Errorf("with the annotation {}:\n%s", page)
			}
		})
	}
	if page := explained(t, `{"runQueueDelay": "2ms"}`, nil); !strings.Contains(page, "Its node has not reported yet whether it is kept.") {
		t.Errorf("without a report:\n%s", page)
	}
	if page := explained(t, `{"runQueueDelay": "2ms"}`, &v1alpha1.Objectives{More: 3}); !strings.Contains(page, "The report of node-1 has no room for it: it leaves out 3 services.") {
		t.Errorf("of a node with many services:\n%s", page)
	}
	if page := explained(t, `{"p99": "2ms", "port": 80}`, nil); !strings.Contains(page, "not as written: tenon.sh/objective: source: missing: want one of metrics, socket, query") || strings.Contains(page, "Its objective") {
		t.Errorf("with a fault:\n%s", page)
	}
}

// TestAPodIsExplainedWithItsRequests prints the page of a pod with an objective for
// its requests, for each verdict.
func TestAPodIsExplainedWithItsRequests(t *testing.T) {
	of := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	begun := metav1.NewMicroTime(noon.Add(-50 * time.Second))
	const annotation = `{"p50": "1ms", "p99": "5ms", "source": "metrics", "port": 8080}`
	requests := func(state, cause, trouble string) *v1alpha1.ServiceRequests {
		return &v1alpha1.ServiceRequests{
			Targets: []v1alpha1.RequestTarget{{Percentile: "p50", Within: *of(time.Millisecond)}, {Percentile: "p99", Within: *of(5 * time.Millisecond)}},
			Source:  "metrics", State: state, Cause: cause, Trouble: trouble, Percentile: "p99", Measured: of(20 * time.Millisecond), Buckets: []v1alpha1.RequestBucket{{Count: 700}, {Count: 50}},
		}
	}
	spent := func(cause string, s v1alpha1.RequestTime) *v1alpha1.ServiceRequests {
		r := requests("Missed", cause, "")
		s.Window, r.Spent = *of(15 * time.Second), &s
		return r
	}
	endless := requests("Missed", "not-waiting", "")
	endless.Measured = nil
	for name, tc := range map[string]struct {
		requests *v1alpha1.ServiceRequests
		delay    *metav1.Duration
		want     string
	}{
		"kept":          {requests("Kept", "", ""), nil, "It is kept for 40s: p99 of 750 requests is at most 20ms. The node"},
		"missed":        {requests("Missed", "best-effort", ""), nil, "It is missed for 40s: p99 of 750 requests is at most 20ms. Best-effort work ran during 64 % of the waiting time: batch/train 64 %."},
		"not for waits": {endless, nil, "p99 of 750 requests is above the longest bucket of the histogram. Its threads hardly waited for a CPU: its own work took longer, or it waited for something else. Batch work is left alone."},
		"memory that batch work took": {spent("best-effort-memory", v1alpha1.RequestTime{MemoryStall: of(3 * time.Second)}), nil,
			"Its threads waited for memory during 20 % of the time, and batch/train, which is best-effort work, took memory lately. Memory QoS and memory eviction act on memory. Batch work keeps its CPU."},
		"memory":          {spent("memory", v1alpha1.RequestTime{MemoryStall: of(3 * time.Second)}), nil, "Its threads waited for memory during 20 % of the time, because of its own limit or of other work than best-effort. Batch work is left alone."},
		"contention":      {spent("contention", v1alpha1.RequestTime{CPUPerRequest: of(1300 * time.Microsecond), UsualCPUPerRequest: of(time.Millisecond)}), nil, "more CPU time than with the same load before (1.3ms, and 1ms before), and other work runs more"},
		"a disk":          {spent("storage", v1alpha1.RequestTime{IOStall: of(6 * time.Second)}), nil, "Its threads waited for a disk during 40 % of the time. Batch work is left alone."},
		"a back end":      {requests("Missed", "downstream", ""), nil, "Its threads slept: they neither ran for longer nor waited for a CPU, memory or a disk, but for a back end or for locks of their own. Batch work is left alone."},
		"straddled":       {requests("Undecided", "straddled", ""), nil, "Whether it is kept is not known: too many requests are in the bucket of the histogram around p99; a bucket that ends at the target would decide."},
		"overlapping":     {requests("Undecided", "overlapping", ""), nil, "Whether it is kept is not known: too many of its requests overlap on a connection, so that the sockets do not show how long each took."},
		"no hook":         {requests("Undecided", "no-source", "no-hook"), nil, "its requests cannot be read (the kernel of the node does not show when sockets send data)."},
		"few":             {requests("Undecided", "too-few", ""), nil, "Whether it is kept is not known: there were too few requests, or the first window has not ended."},
		"not read":        {requests("Undecided", "no-source", "redirect"), nil, "Whether it is kept is not known: its requests cannot be read (the answer is a redirection)."},
		"no Prometheus":   {requests("Undecided", "no-source", "no-prometheus"), nil, "its requests cannot be read (the administrator has named no Prometheus server, by --prometheus-url of tenon-manager)."},
		"of a newer node": {requests("Undecided", "no-source", "other"), nil, "its requests cannot be read (other)."},
		"both":            {requests("Undecided", "no-source", "slow"), of(2 * time.Millisecond), "It is kept for 40s: 99 of 100 waits ended within 131µs, and of its requests it is not known, because its requests cannot be read (the answer takes longer than 2 s)."},
	} {
		s := v1alpha1.ServiceObjective{Namespace: "shop", Pod: "web", Requests: tc.requests, RunQueueDelay: tc.delay, State: tc.requests.State, Cause: tc.requests.Cause, Since: &begun, Waited: of(time.Second)}
		note, wants := annotation, "requests are answered with p50 within 1ms, p99 within 5ms (source: metrics).\n"
		if s.Cause == "best-effort" {
			s.Runners = []v1alpha1.ObjectiveRunner{{Namespace: "batch", Pod: "train", Kind: "best-effort", Time: *of(640 * time.Millisecond)}}
		}
		if s.Cause == "best-effort-memory" {
			s.CulpritNamespace, s.Culprit = "batch", "train"
		}
		if tc.delay != nil {
			s.State, s.Cause, s.Measured = "Kept", "", of(131*time.Microsecond)
			note = strings.Replace(annotation, "{", `{"runQueueDelay": "2ms", `, 1)
			wants = "99 of 100 waits of its threads for a CPU end within 2ms, and " + wants
		}
		all := &v1alpha1.Objectives{Services: []v1alpha1.ServiceObjective{s}}
		if page := explained(t, note, all); !strings.Contains(page, "Its objective (annotation): "+wants) || !strings.Contains(page, tc.want) {
			t.Errorf("%s: the page\n%s\nlacks\n%s", name, page, tc.want)
		}
		if page := explained(t, strings.Replace(note, "5ms", "6ms", 1), all); !strings.Contains(page, "Its node has not reported yet whether it is kept.") || !strings.Contains(page, "p99 within 6ms") {
			t.Errorf("%s: with a newer annotation:\n%s", name, page)
		}
		if page := explained(t, "", all); !strings.Contains(page, "Its objective (ConfigMap): "+wants) {
			t.Errorf("%s: without an annotation:\n%s", name, page)
		}
	}
}

// TestServicesOfASilentNodeAreNotCounted has a node whose last report is an hour old,
// and one whose report has no room for all services.
func TestServicesOfASilentNodeAreNotCounted(t *testing.T) {
	of := func(name string, age time.Duration, more int32) nodepages.Node {
		delay := metav1.Duration{Duration: time.Millisecond}
		return nodepages.Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, Report: &v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{
			Reported:   metav1.NewMicroTime(noon.Add(-age)),
			Objectives: &v1alpha1.Objectives{More: more, Services: []v1alpha1.ServiceObjective{{Namespace: "shop", Pod: "web-" + name, State: v1alpha1.ObjectiveKept, RunQueueDelay: &delay}}},
		}}}
	}
	c := New([]nodepages.Node{of("a", 10*time.Second, 2), of("b", time.Hour, 0)}, nil, noon)
	if all := c.Services(); len(all) != 1 || all[0].Service != "web-a" {
		t.Errorf("services %+v", all)
	}
	got := strings.Join(c.Uncounted(), "; ")
	if want := "2 services on a, for which its report has no room; services on b, which last reported 1h0m ago"; got != want {
		t.Errorf("left out are %q, want %q", got, want)
	}
}

// TestThePageAboutObjectivesShowsAPod compares docs/objectives.md with the page of a
// pod. The document breaks the long line as a terminal does.
func TestThePageAboutObjectivesShowsAPod(t *testing.T) {
	document, err := os.ReadFile("../../../docs/objectives.md")
	if err != nil {
		t.Fatal(err)
	}
	of := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	c := scene(t)
	p, report := c.Pod("shop", "report-0"), c.node("node-1").Report
	p.Name, p.Spec.NodeName = "web-7", "node-1"
	p.Labels, p.Annotations = map[string]string{kube.LabelQOSClass: "LS"}, map[string]string{kube.AnnotationObjective: `{"runQueueDelay": "2ms"}`}
	begun := metav1.NewMicroTime(report.Status.Reported.Add(-40 * time.Second))
	report.Status.Objectives = &v1alpha1.Objectives{
		Bounded: []v1alpha1.BoundedWork{{Namespace: "batch", Pod: "train-4", ServiceNamespace: "shop", Service: "web-7", CPU: resource.MustParse("750m"), Share: 90, Since: begun}},
		Services: []v1alpha1.ServiceObjective{{
			Namespace: "shop", Pod: "web-7", RunQueueDelay: of(2 * time.Millisecond), State: v1alpha1.ObjectiveMissed, Since: &begun, Cause: "best-effort",
			Measured: of(8389 * time.Microsecond), Waited: of(time.Second), Runners: []v1alpha1.ObjectiveRunner{
				{Namespace: "batch", Pod: "train-4", Kind: "best-effort", Time: *of(640 * time.Millisecond)}, {Pod: "(other BE)", Kind: "best-effort", Time: *of(70 * time.Millisecond)},
			},
		}},
	}
	page, _ := c.ExplainPod("shop", "web-7", schedulers.Seen{})
	flat := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if text := "$ kubectl tenon explain pod web-7 -n shop\n" + page.Text() + "```"; !strings.Contains(flat(string(document)), flat(text)) {
		t.Errorf("docs/objectives.md does not show\n%s", text)
	}
}

// TestFitSaysWhichObjectiveAPodStates places a pod with an objective on nodes whose
// services wait for 4.2 ms or more also without batch work.
func TestFitSaysWhichObjectiveAPodStates(t *testing.T) {
	const requests = `"p99": "5ms", "source": "metrics", "port": 80`
	for annotation, want := range map[string]string{
		``:                          "",
		`{}`:                        "",
		`{"runQueueDelay": "2ms"}`:  "web states an objective: 99 of 100 waits of its threads for a CPU end within 2ms; on NODE, no service keeps less than 4.2ms, also without batch work",
		`{"runQueueDelay": "4ms"}`:  "web states an objective: 99 of 100 waits of its threads for a CPU end within 4ms", // buckets are not finer
		`{"runQueueDelay": "10ms"}`: "web states an objective: 99 of 100 waits of its threads for a CPU end within 10ms",
		`{` + requests + `}`:        "web states an objective: requests are answered with p99 within 5ms (source: metrics)",
	} {
		c := scene(t)
		for _, n := range c.nodes {
			if n.Report != nil {
				n.Report.Status.Objectives = &v1alpha1.Objectives{Services: []v1alpha1.ServiceObjective{
					{Quiet: &metav1.Duration{Duration: 8388608}}, {Quiet: &metav1.Duration{Duration: 4194304}}, {},
				}}
			}
		}
		wanted := manifests(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {koordinator.sh/qosClass: LS}, annotations: {tenon.sh/objective: '"+annotation+"'}}\nspec: {containers: [{name: web, image: web, resources: {requests: {cpu: '1', memory: 1Gi}}}]}\n").Wanted
		page := c.Fit(wanted, Webhook{}, nil)
		if len(page.Pods) != 1 || page.Pods[0].Answer != FitPlaced {
			t.Fatalf("%+v", page)
		}
		want = strings.Replace(want, "NODE", page.Pods[0].Node, 1)
		if got := strings.Join(page.Objectives, "\n"); got != want || !strings.Contains(page.Text(), want+"\n") {
			t.Errorf("%s: %q, want %q", annotation, got, want)
		}
	}
}

// explained returns the page of a pod with this annotation.
func explained(t *testing.T, annotation string, all *v1alpha1.Objectives) string {
	t.Helper()
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Labels: map[string]string{kube.LabelQOSClass: "LS"}}}
	if p.Spec.NodeName = "node-1"; annotation != "" {
		p.Annotations = map[string]string{kube.AnnotationObjective: annotation}
	}
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	r := v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: v1alpha1.NodeReportStatus{Reported: metav1.NewMicroTime(noon.Add(-10 * time.Second)), Objectives: all}}
	c := New(nodepages.Nodes([]corev1.Node{n}, []v1alpha1.NodeReport{r}), []corev1.Pod{p}, noon)
	page, found := c.ExplainPod("shop", "web", schedulers.Seen{})
	if !found {
		t.Fatal("the pod is not there")
	}
	return page.Text()
}
