package cluster

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/apiserver/apitest"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/model/node"
)

// TestAnObjectiveChangesWhileThePodRuns changes the annotation of a running pod,
// and the ConfigMap. Both must change the objective of the workload, without a
// restart of the pod or of the agent.
func TestAnObjectiveChangesWhileThePodRuns(t *testing.T) {
	s := apitest.New(t)
	s.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u"}})
	c := openTestCluster(t, s, t.TempDir())
	c.tree, c.paths = groups(t, "kubepods/burstable/podu1")
	c.lives = func(node.CgroupPath) bool { return true }
	web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{"app": "web", kube.LabelQOSClass: "LS"}}}
	web.Status.Phase, web.Status.QOSClass = corev1.PodRunning, corev1.PodQOSBurstable
	objective := func() time.Duration {
		c.last.Facts.CgroupDriver = "cgroupfs"
		c.last.Pods = []corev1.Pod{*web}
		c.FollowConfig()
		all := c.workloads()
		if len(all) != 1 {
			t.Fatalf("workloads %+v", all)
		}
		return all[0].Objective.RunQueueDelay.Or(0)
	}
	becomes := func(why string, want time.Duration) {
		t.Helper()
		soon(t, why, func() bool { return objective() == want })
	}
	becomes("no objective", 0)
	web.Annotations, web.Status.PodIP = map[string]string{kube.AnnotationObjective: `{"p99": "5ms", "source": "metrics", "port": 8080}`}, "10.0.3.7"
	becomes("no objective for waits", 0)
	if ip, why := c.Metrics("shop/web"); ip != "10.0.3.7" || why != "" {
		t.Errorf("the metrics of the pod are at %q %s", ip, why)
	}
	if c.queries.Load() {
		t.Error("the manager is asked for the metrics of a pod that the agent reads")
	}
	web.Annotations, web.Status.PodIP = map[string]string{kube.AnnotationObjective: `{"p99": "5ms", "source": "query"}`}, ""
	becomes("no objective for waits", 0)
	if ip, why := c.Metrics("shop/web"); ip != "" || why != "" || !c.queries.Load() {
		t.Errorf("Prometheus is asked %v, the pod is at %q %s", c.queries.Load(), ip, why)
	}
	web.Annotations = map[string]string{kube.AnnotationObjective: `{"runQueueDelay": "2ms"}`}
	becomes("the annotation counts", 2*time.Millisecond)
	if c.queries.Load() {
		t.Error("the manager is asked without an objective that needs it")
	}
	s.Put(configMap(map[string]string{"objective-config": `{"objectives": [{"namespaces": ["shop"], "podSelector": {"matchLabels": {"app": "web"}}, "objective": {"runQueueDelay": "30ms"}}]}`}))
	soon(t, "the ConfigMap is read", func() bool {
		c.FollowConfig()
		return len(c.cfg.node.Objectives.Objectives) == 1
	})
	becomes("the annotation goes before the ConfigMap", 2*time.Millisecond)
	web.Annotations = nil
	becomes("the ConfigMap counts without an annotation", 30*time.Millisecond)
	s.Put(configMap(map[string]string{"objective-config": `{"objectives": [{"namespaces": ["shop"], "objective": {"runQueueDelay": "40ms"}}]}`}))
	becomes("the ConfigMap has changed", 40*time.Millisecond)
	s.Put(configMap(map[string]string{"objective-config": `{"objectives": [{"namespaces": ["shop"], "objective": {"runQueueDelay": "40s"}}]}`}))
	soon(t, "the fault is known", func() bool { c.FollowConfig(); return len(c.cfg.status.Faults) == 1 })
	becomes("a key with a fault keeps its content", 40*time.Millisecond)
	s.Put(configMap(map[string]string{"objective-config": `{"leastRunQueueDelay": "5ms", "objectives": [{"namespaces": ["shop"], "objective": {"runQueueDelay": "40ms"}}]}`}))
	soon(t, "the limit is known", func() bool { c.FollowConfig(); return c.cfg.node.Objectives.LeastRunQueueDelay.Known() })
	becomes("the ConfigMap keeps the limit", 40*time.Millisecond)
	web.Annotations = map[string]string{kube.AnnotationObjective: `{"runQueueDelay": "2ms"}`}
	becomes("an objective below the limit does not count", 0)
	if strict := c.workloads()[0].Objective.TooStrict.Or(0); strict != 2*time.Millisecond {
		t.Errorf("too strict: %v", strict)
	}
	web.Annotations = map[string]string{kube.AnnotationObjective: `{}`}
	becomes("the pod says that it has none", 0)
	web.Annotations, web.Labels[kube.LabelQOSClass] = nil, "BE"
	becomes("a best-effort pod has none", 0)
	web.Labels[kube.LabelQOSClass] = "LS"
	s.Put(configMap(nil))
	becomes("the key was removed", 0)
}

// TestWhereThePodShowsItsMetrics checks that the agent connects to the address of a
// pod alone, and only if the administrator allows it.
func TestWhereThePodShowsItsMetrics(t *testing.T) {
	o, faults := config.ReadObjective(`{"p99": "5ms", "source": "metrics", "port": 8080}`, node.LS)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, tc := range []struct {
		ip   string
		host bool
		by   config.PodObjectives
		want metricsPlace
	}{
		{ip: "10.0.3.7", want: metricsPlace{address: "10.0.3.7"}},
		{ip: "fd00::7", want: metricsPlace{address: "fd00::7"}},
		{ip: "10.0.3.7", host: true, want: metricsPlace{trouble: node.TroubleHostNetwork}},
		{ip: "", want: metricsPlace{trouble: node.TroubleNoAddress}},
		{ip: "127.0.0.1", want: metricsPlace{trouble: node.TroubleNoAddress}},
		{ip: "169.254.169.254", want: metricsPlace{trouble: node.TroubleNoAddress}},
		{ip: "0.0.0.0", want: metricsPlace{trouble: node.TroubleNoAddress}},
		{ip: "fe80::1", want: metricsPlace{trouble: node.TroubleNoAddress}},
		{ip: "web.shop", want: metricsPlace{trouble: node.TroubleNoAddress}},
		{ip: "10.0.3.7", by: config.PodObjectives{Scrape: node.Some(false)}, want: metricsPlace{trouble: node.TroubleOff}},
		{ip: "10.0.3.7", by: config.PodObjectives{LeastRequestLatency: node.Some(10 * time.Millisecond)}, want: metricsPlace{trouble: node.TroubleTooStrict}},
	} {
		p := &corev1.Pod{}
		p.Status.PodIP, p.Spec.HostNetwork = tc.ip, tc.host
		if got := metricsOf(p, o.Requests, tc.by); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.ip, got, tc.want)
		}
		o := o.Requests
		o.Source = node.SourceQuery
		want := metricsPlace{} // the agent does not connect to the pod
		if tc.want.trouble == node.TroubleTooStrict {
			want = tc.want
		}
		if got := metricsOf(p, o, tc.by); got != want {
			t.Errorf("%s, by query: %+v, want %+v", tc.ip, got, want)
		}
	}
	// What the kernel measures needs no address, but the least target holds.
	o, _ = config.ReadObjective(`{"p99": "5ms", "source": "socket", "port": 8080}`, node.LS)
	p := &corev1.Pod{}
	p.Spec.HostNetwork = true
	for least, want := range map[time.Duration]metricsPlace{5 * time.Millisecond: {}, 6 * time.Millisecond: {trouble: node.TroubleTooStrict}} {
		if got := metricsOf(p, o.Requests, config.PodObjectives{Scrape: node.Some(false), LeastRequestLatency: node.Some(least)}); got != want {
			t.Errorf("at the socket, at least %v: %+v, want %+v", least, got, want)
		}
	}
}

// TestTheAgentAsksTheManagerWhileAnObjectiveNeedsIt reads the answers of the manager
// from the report of the node.
func TestTheAgentAsksTheManagerWhileAnObjectiveNeedsIt(t *testing.T) {
	s := apitest.New(t)
	s.Show("/apis/tenon.sh/v1alpha1/nodereports/node-1", []byte(`{"status": {"queried": {"services": [{"namespace": "shop", "pod": "web", "series": {"family": "rtt_seconds"}, "trouble": "slow"}]}}}`))
	c := openTestCluster(t, s, t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); c.hearQueried(ctx) }()
	defer func() { stop(); <-over }()
	time.Sleep(50 * time.Millisecond)
	if got := c.Queried(); got != nil {
		t.Errorf("without an objective: %+v", got)
	}
	c.queries.Store(true)
	var got []v1alpha1.QueriedService
	soon(t, "the answer", func() bool { got = c.Queried(); return got != nil })
	if len(got) != 1 || got[0].Pod != "web" || got[0].Trouble != "slow" {
		t.Errorf("%+v", got)
	}
	if again := c.Queried(); again != nil {
		t.Errorf("the same answer again: %+v", again)
	}
}
