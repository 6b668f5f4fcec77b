package podpages

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/manifest"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/schedulers"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func scene(t *testing.T) *Cluster {
	t.Helper()
	text, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Nodes   []corev1.Node         `json:"nodes"`
		Reports []v1alpha1.NodeReport `json:"reports"`
		Pods    []corev1.Pod          `json:"pods"`
	}
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		t.Fatal(err)
	}
	return New(nodepages.Nodes(all.Nodes, all.Reports), all.Pods, noon)
}

// golden compares a text with a golden file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test -update rewrites it:\n%s", name, diff)
	}
}

// checkShown checks that docs/cpus.md or docs/kubectl-tenon.md contains a text.
func checkShown(t *testing.T, text string) {
	t.Helper()
	for _, name := range []string{"cpus", "kubectl-tenon"} {
		page, err := os.ReadFile("../../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(page), text) {
			return
		}
	}
	t.Errorf("neither docs/cpus.md nor docs/kubectl-tenon.md shows\n%s", text)
}

func TestAPodIsExplainedNodeByNode(t *testing.T) {
	for name, file := range map[string]string{
		"db-2": "waits.txt", "db-0": "own.txt", "cache-0": "node-chose.txt", "web-0": "moved.txt", "encode-0": "pool.txt", "db-3": "not-reported.txt", "old-0": "refused.txt",
		"report-0": "plain.txt",
	} {
		page, found := scene(t).ExplainPod("shop", name, schedulers.Seen{})
		if !found {
			t.Fatalf("%s is not there", name)
		}
		text := page.Text()
		golden(t, file, text)
		if name == "db-2" || name == "cache-0" {
			checkShown(t, text)
		}
	}
	if _, found := scene(t).ExplainPod("default", "db-2", schedulers.Seen{}); found {
		t.Error("a pod of another namespace is found")
	}
}

// TestExplainSaysWhyAPodHasSeatsInPlaceOfOwnCPUs explains a pod whose sidecar
// requests CPU.
func TestExplainSaysWhyAPodHasSeatsInPlaceOfOwnCPUs(t *testing.T) {
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(`
metadata: {name: web, namespace: shop, annotations: {cpuset-scheduler: "true"}}
spec:
  initContainers: [{name: proxy, restartPolicy: Always, resources: {requests: {cpu: 100m}}}]
  containers: [{name: web, resources: {limits: {cpu: "2"}}}]
`), &p); err != nil {
		t.Fatal(err)
	}
	page, found := New(nil, []corev1.Pod{p}, noon).ExplainPod("shop", "web", schedulers.Seen{})
	const want = `shop/web asks for 2 CPUs, shared, for a request of 2100m.
  not as written: cpuset-scheduler: the CPU request of sidecar "proxy" turns 2 own CPUs into seats, which others may share: leave it out, or write class LSR and request whole CPUs
`
	if text := page.Text(); !found || !strings.HasPrefix(text, want) {
		t.Errorf("%s", text)
	}
}

// TestAPartOfACPUIsNotAsWritten explains a pod that was created while the
// webhook was off.
func TestAPartOfACPUIsNotAsWritten(t *testing.T) {
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte("metadata: {name: a, namespace: shop, labels: {koordinator.sh/qosClass: LSR}}\nspec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}"), &p); err != nil {
		t.Fatal(err)
	}
	page, _ := New(nil, []corev1.Pod{p}, noon).ExplainPod("shop", "a", schedulers.Seen{})
	const want = "  not as written: koordinator.sh/qosClass: the pod requests 500m in total, so it gets no CPUs of its own: want a whole number such as 2, or class LS\n"
	if text := page.Text(); !strings.Contains(text, want) {
		t.Errorf("%s", text)
	}
}

// TestADeferredResizeShowsWhatTheNodeDoes shrinks a pod with one CPU, whose CPU
// then goes to another pod, and grows it again. Another pod wants a second CPU.
func TestADeferredResizeShowsWhatTheNodeDoes(t *testing.T) {
	const scene = `
nodes: [{metadata: {name: node-9}, status: {allocatable: {cpu: "4", pods: "10"}}}]
reports:
- metadata: {name: node-9}
  status: {reported: "2026-03-01T11:59:58.000000Z", cpus: {caches: [{socket: 0, numa: 0, l3: 0, cpus: 0-3}], keep: 1, pods: [{uid: u2, policy: exclusive, cpus: "1", by: scheduler}, {uid: u3, policy: exclusive, cpus: "2", by: scheduler}, {uid: u4, pod: a/stale, why: requests 1 CPU of its own}]}}
pods:
- metadata: {name: own1, namespace: a, uid: u1, labels: {koordinator.sh/qosClass: LSR}, annotations: {tenon.sh/cpus: '{"v":2,"topology":"00000000000000ff","policy":"exclusive","cpus":"1"}'}}
  spec: {nodeName: node-9, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
  status:
    conditions: [{type: PodResizePending, status: "True", reason: Deferred, message: "not enough cpu"}]
    containerStatuses: [{name: c, allocatedResources: {cpu: 500m}, resources: {requests: {cpu: 500m}}}]
- metadata: {name: pin1, namespace: a, uid: u2, labels: {koordinator.sh/qosClass: LSR}, annotations: {tenon.sh/cpus: '{"v":2,"topology":"00000000000000ff","policy":"exclusive","cpus":"1"}'}}
  spec: {nodeName: node-9, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
- metadata: {name: grow, namespace: a, uid: u3, labels: {koordinator.sh/qosClass: LSR}}
  spec: {nodeName: node-9, containers: [{name: c, resources: {requests: {cpu: "2"}}}]}
  status:
    conditions: [{type: PodResizePending, status: "True", reason: Deferred, message: "not enough cpu"}]
    containerStatuses: [{name: c, allocatedResources: {cpu: "1"}, resources: {requests: {cpu: "1"}}}]
- metadata: {name: stale, namespace: a, uid: u4, labels: {koordinator.sh/qosClass: LSR}, creationTimestamp: "2026-03-01T11:50:00Z", annotations: {tenon.sh/cpus: '{"v":2,"topology":"00000000000000ff","policy":"exclusive","cpus":"2"}'}}
  spec: {nodeName: node-9, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
`
	var all struct {
		Nodes   []corev1.Node         `json:"nodes"`
		Reports []v1alpha1.NodeReport `json:"reports"`
		Pods    []corev1.Pod          `json:"pods"`
	}
	if err := yaml.UnmarshalStrict([]byte(scene), &all); err != nil {
		t.Fatal(err)
	}
	c := New(nodepages.Nodes(all.Nodes, all.Reports), all.Pods, noon)
	for name, want := range map[string]string{
		"own1": "a/own1 asks for 1 CPU of its own.\n  the kubelet has deferred the resize to 1 CPU: not enough cpu\nIt is on node-9 and runs on the CPUs that no pod owns.\n",
		"grow": "a/grow asks for 2 CPUs of its own.\n  the kubelet has deferred the resize to 2 CPUs: not enough cpu\nIt has 1 CPU (2) of node-9 for itself",
	} {
		if page, _ := c.ExplainPod("a", name, schedulers.Seen{}); !strings.HasPrefix(page.Text(), want) {
			t.Errorf("%s", page.Text())
		}
	}
	m, err := c.Map("node-9")
	if err != nil {
		t.Fatal(err)
	}
	if text := m.Text(); strings.Contains(text, "several pods are bound") || strings.Contains(text, "own1") {
		t.Errorf("%s", text)
	}
}

// TestAHomeThatIsTheWholeNodeIsTheNode explains a pool whose home has two
// NUMA nodes, and asks where such a pool would be.
func TestAHomeThatIsTheWholeNodeIsTheNode(t *testing.T) {
	c := scene(t)
	held := &c.node("node-2").Report.Status.CPUs.Pods
	*held = append(*held, v1alpha1.PodCPUs{UID: "uid-wide", Policy: "pool", CPUs: "3-7,11-15", Domain: "0-15", Request: 9000, By: "scheduler"})
	p := c.Pod("shop", "encode-0").DeepCopy()
	p.Name, p.UID, p.Spec.NodeName = "wide-0", "uid-wide", "node-2"
	c.pods = append(c.pods, *p)
	page, _ := c.ExplainPod("shop", "wide-0", schedulers.Seen{})
	if text := page.Text(); !strings.Contains(text, "of node-2, the open ones of the node (0-15).") {
		t.Errorf("%s", text)
	}
	const wide = "kind: Pod\nmetadata: {name: wide, annotations: {cpuset-scheduler: 'true', cpu-policy: static-burst}}\nspec: {nodeName: node-2, containers: [{name: c, resources: {requests: {cpu: 7}}}]}\n"
	if text, fits := fit(scene(t), manifests(t, wide).Wanted, Webhook{}); !fits || !strings.Contains(text, "  the node\n") {
		t.Errorf("%s", text)
	}
}

// manifests reads the pods of a text.
func manifests(t *testing.T, text string) *manifest.Set {
	t.Helper()
	var m manifest.Set
	if err := m.Read(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return &m
}

// fit returns the page of pods, and whether all find a place.
func fit(c *Cluster, wanted []manifest.Wanted, by Webhook, known ...schedulers.Scheduler) (text string, fits bool) {
	page := c.Fit(wanted, by, known)
	return page.Text(), page.Fits == page.Total
}

func TestFitSaysWhatTheSchedulerWouldDo(t *testing.T) {
	f, err := os.Open("testdata/db.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var m manifest.Set
	if err := m.Read(f); err != nil {
		t.Fatal(err)
	}
	text, fits := fit(scene(t), m.Wanted, Webhook{})
	golden(t, "fit.txt", text)
	checkShown(t, text)
	if fits {
		t.Error("all pods find a place")
	}
	m.Wanted[0].Count = 1
	if text, fits := fit(scene(t), m.Wanted, Webhook{}); !fits {
		t.Errorf("one replica finds no place:\n%s", text)
	}
}

func TestADaemonSetHasAPodOnEachNodeThatItTolerates(t *testing.T) {
	wanted := manifests(t, "kind: DaemonSet\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: c, resources: {requests: {cpu: 3}}}]}}}").Wanted
	text, fits := fit(scene(t), wanted, Webhook{})
	for _, want := range []string{"d on node-1", "d on node-2", "d on node-4", "node: insufficient cpu", "of 3 pods"} {
		if fits || !strings.Contains(text, want) || strings.Contains(text, "node-3") {
			t.Errorf("fits %v, want %q in\n%s", fits, want, text)
		}
	}
}

// TestInsufficientResourcesHaveNumbers asks for more CPU time than nodes have,
// once with the name of the node.
func TestInsufficientResourcesHaveNumbers(t *testing.T) {
	const pod = "kind: Pod\nmetadata: {name: p}\nspec: {%scontainers: [{name: c, resources: {requests: {cpu: 15500m}}}]}"
	for name, x := range map[string]struct{ spec, want string }{
		"any node": {"tolerations: [{operator: Exists}], ", "  4 nodes: insufficient cpu: requests 15500m, 8 of 8 CPUs left on the node with the most\n"},
		"its node": {"nodeName: node-4, ", "  1 node: insufficient cpu: requests 15500m, 2 of 8 CPUs left\n  the kubelet would reject the pod (OutOfcpu)\n"},
	} {
		if text, fits := fit(scene(t), manifests(t, fmt.Sprintf(pod, x.spec)).Wanted, Webhook{}); fits || !strings.Contains(text, x.want) {
			t.Errorf("%s: want %q in\n%s", name, x.want, text)
		}
	}
	page, _ := scene(t).ExplainPod("shop", "db-2", schedulers.Seen{})
	if text := page.Text(); !strings.Contains(text, "insufficient cpu: requests 8, ") {
		t.Errorf("%s", text)
	}
}

// TestANodeWithoutAllocatableTakesNoPod makes a node whose kubelet has not
// reported yet, and to which a pod is bound already.
func TestANodeWithoutAllocatableTakesNoPod(t *testing.T) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	bound := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "a"}, Spec: corev1.PodSpec{NodeName: "new"}}
	c := New(nodepages.Nodes([]corev1.Node{node}, nil), []corev1.Pod{bound}, noon)
	wanted := manifests(t, "kind: Pod\nmetadata: {name: q}\nspec: {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}").Wanted
	if text, fits := fit(c, wanted, Webhook{}); fits || !strings.Contains(text, "insufficient cpu") {
		t.Errorf("fits %v:\n%s", fits, text)
	}
}

func TestAnOldReportTakesNoPod(t *testing.T) {
	c := scene(t)
	old := New([]nodepages.Node{c.nodes[1].Node}, nil, noon.Add(time.Hour))
	wanted := manifests(t, "kind: Pod\nmetadata: {name: p, annotations: {cpuset-scheduler: 'true'}}\nspec: {containers: [{name: c, resources: {limits: {cpu: '1'}}}]}").Wanted
	if text, fits := fit(old, wanted, Webhook{}); fits || !strings.Contains(text, "the report of the node's agent is too old") {
		t.Errorf("fits %v:\n%s", fits, text)
	}
}

func TestTheMapShowsWhoHoldsWhichCPU(t *testing.T) {
	m, err := scene(t).Map("node-1")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "map.txt", m.Text())
	checkShown(t, m.Text())
	golden(t, "map.svg", m.SVG())
	two, err := scene(t).Map("node-2")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "map-2.txt", two.Text())
	golden(t, "lines.txt", scene(t).Lines())
	checkShown(t, scene(t).Lines()[1:])
	for node, want := range map[string]string{"node-4": "no agent has reported the CPUs of the node", "node-9": `there is no node "node-9"`} {
		if _, err := scene(t).Map(node); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", node, err, want)
		}
	}
}

// TestFitAppliesProfilesToManifests checks a profile that makes an ordinary pod
// LSR. The pod then demands CPUs of its own.
func TestFitAppliesProfilesToManifests(t *testing.T) {
	const pod = "kind: Pod\nmetadata: {name: p, labels: {app: db}}\nspec: {containers: [{name: c, resources: {requests: {cpu: 2}, limits: {cpu: 2}}}]}"
	var db, elsewhere, some configv1alpha1.ClusterColocationProfile
	db.Name, db.Spec.QoSClass = "db", "LSR"
	db.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	elsewhere.Name, elsewhere.Spec.QoSClass = "elsewhere", "BE"
	elsewhere.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "batch"}}
	half := intstr.FromString("50%")
	some.Name, some.Spec.QoSClass, some.Spec.Probability = "some", "LSR", &half
	for name, c := range map[string]struct {
		by     Webhook
		want   []string
		absent string
	}{
		"none":    {Webhook{}, []string{"no CPUs of its own"}, "ClusterColocationProfile"},
		"one":     {Webhook{Profiles: []configv1alpha1.ClusterColocationProfile{db}}, []string{"2 CPUs of its own", "p: as ClusterColocationProfile db makes it"}, "no CPUs of its own"},
		"half":    {Webhook{Profiles: []configv1alpha1.ClusterColocationProfile{some, db}}, []string{"2 CPUs of its own", "p: as ClusterColocationProfile db, some (50 % of such pods) makes it"}, "no CPUs of its own"},
		"another": {Webhook{Profiles: []configv1alpha1.ClusterColocationProfile{elsewhere}, Namespaces: map[string]*corev1.Namespace{"default": {}}}, []string{"no CPUs of its own"}, "ClusterColocationProfile"},
		"an unknown namespace": {Webhook{Profiles: []configv1alpha1.ClusterColocationProfile{elsewhere}},
			[]string{"not as written: p: ClusterColocationProfile elsewhere is not applied: the labels of the pod's namespace are not known"}, "makes it"},
		"unread": {Webhook{Unread: []string{"colocation profiles (forbidden)"}}, []string{"Not looked at: colocation profiles (forbidden).\n"}, "makes it"},
	} {
		text, _ := fit(scene(t), manifests(t, pod).Wanted, c.by)
		for _, want := range c.want {
			if !strings.Contains(text, want) || strings.Contains(text, c.absent) {
				t.Errorf("%s: want %q and not %q in\n%s", name, want, c.absent, text)
			}
		}
	}
}
