package manager

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/model/unit"
)

// A replay is a minimal API server for the manager. It serves discovery,
// watches of nodes, reports and one ConfigMap, and patches. It uses very little
// CPU, so that the benchmark measures the manager.
type replay struct {
	t       testing.TB
	mu      sync.Mutex
	version int
	nodes   map[string]*corev1.Node
	streams map[string][]chan []byte // open watches by resource
	first   map[string][]byte        // the initial events of a watch
	said    map[string]time.Time     // the time at which a report was sent
	delays  []time.Duration
	patches map[string]int
}

func newReplay(t testing.TB, nodes int) *replay {
	r := &replay{t: t, version: 1, nodes: map[string]*corev1.Node{}, streams: map[string][]chan []byte{}, first: map[string][]byte{}, said: map[string]time.Time{}, patches: map[string]int{}}
	var all []byte
	for i := range nodes {
		n := machineOf(16, 64)
		n.TypeMeta, n.Name = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, fmt.Sprintf("replay-%04d", i)
		n.Labels = map[string]string{"kubernetes.io/hostname": n.Name, "topology.kubernetes.io/zone": "z1", "node.kubernetes.io/instance-type": "large"}
		for i := range 50 {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/team/application-%d@sha256:%064d", i, i)}, SizeBytes: 1 << 28})
		}
		r.nodes[n.Name] = n
		all = append(all, r.event("ADDED", n)...)
	}
	r.first["nodes"] = all
	m := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "replay", Name: "settings"}, Data: map[string]string{"colocation-config": `{"enable":true}`}}
	r.first["configmaps"] = r.event("ADDED", m)
	return r
}

// event returns one line of a watch.
func (r *replay) event(kind string, o client.Object) []byte {
	r.version++
	o.SetResourceVersion(fmt.Sprint(r.version))
	text, err := json.Marshal(map[string]any{"type": kind, "object": o})
	if err != nil {
		r.t.Fatal(err)
	}
	return append(text, '\n')
}

// send adds a line to all watches of a resource.
func (r *replay) send(resource string, line []byte) {
	for _, to := range r.streams[resource] {
		to <- line
	}
}

func (r *replay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	resources := func(version string, kinds ...string) {
		var list []map[string]any
		for i := 0; i < len(kinds); i += 2 {
			for _, sub := range []string{"", "/status"} {
				list = append(list, map[string]any{"name": kinds[i] + sub, "kind": kinds[i+1], "namespaced": slices.Contains([]string{"configmaps", "secrets", "events"}, kinds[i]), "verbs": []string{"get", "list", "watch", "patch"}})
			}
		}
		json.NewEncoder(w).Encode(map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": list})
	}
	group := func(name, version string) map[string]any {
		v := map[string]string{"groupVersion": name + "/" + version, "version": version}
		return map[string]any{"name": name, "versions": []any{v}, "preferredVersion": v}
	}
	path := q.URL.Path
	switch {
	case path == "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case path == "/apis":
		json.NewEncoder(w).Encode(map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{group("tenon.sh", "v1alpha1"), group("events.k8s.io", "v1"), group("scheduling.k8s.io", "v1"), group("admissionregistration.k8s.io", "v1")}})
	case path == "/api/v1":
		resources("v1", "nodes", "Node", "configmaps", "ConfigMap", "secrets", "Secret", "namespaces", "Namespace", "limitranges", "LimitRange")
	case path == "/apis/tenon.sh/v1alpha1":
		resources("tenon.sh/v1alpha1", "nodereports", "NodeReport")
	case path == "/apis/scheduling.k8s.io/v1":
		resources("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass")
	case path == "/apis/admissionregistration.k8s.io/v1":
		resources("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
	case path == "/apis/events.k8s.io/v1":
		resources("events.k8s.io/v1", "events", "Event")
	case q.Method == http.MethodPatch && strings.Contains(path, "/nodes/"):
		r.applyPatch(w, q, strings.Split(path, "/")[4])
	case q.Method == http.MethodPatch:
		r.mu.Lock()
		r.patches["reports"]++
		r.mu.Unlock()
		fmt.Fprint(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"x"}}`)
	case q.URL.Query().Get("watch") != "":
		r.stream(w, q, path[strings.LastIndex(path, "/")+1:])
	default:
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"items":[]}`)
	}
}

// applyPatch applies a write to the status of a node, and sends it to the
// watches.
func (r *replay) applyPatch(w http.ResponseWriter, q *http.Request, name string) {
	var patch struct {
		Status struct {
			Capacity, Allocatable map[corev1.ResourceName]*string
		}
	}
	if err := json.NewDecoder(q.Body).Decode(&patch); err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[name]
	r.patches["nodes"]++
	if at, waits := r.said[name]; waits {
		r.delays = append(r.delays, time.Since(at))
		delete(r.said, name)
	}
	for k := range kinds {
		q := k.native(n.Status.Capacity[k.nativeName()], unit.Down)
		if text := patch.Status.Allocatable[k.batchName()]; text == nil || q == 0 {
			r.t.Errorf("node %s loses %v", name, k)
		} else {
			var amount int64
			fmt.Sscan(*text, &amount)
			n.Status.Capacity[k.batchName()], n.Status.Allocatable[k.batchName()] = k.quantity(amount), k.quantity(amount)
		}
	}
	r.send("nodes", r.event("MODIFIED", n))
	fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"resourceVersion":%q}}`, name, n.ResourceVersion)
}

// stream serves a watch that begins with all objects.
func (r *replay) stream(w http.ResponseWriter, q *http.Request, resource string) {
	r.mu.Lock()
	lines := make(chan []byte, 1<<16)
	r.streams[resource] = append(r.streams[resource], lines)
	first, version := r.first[resource], r.version
	r.mu.Unlock()
	kind := map[string]string{"nodes": "v1 Node", "configmaps": "v1 ConfigMap", "nodereports": "tenon.sh/v1alpha1 NodeReport"}[resource]
	api, name, _ := strings.Cut(kind, " ")
	w.Write(first)
	fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", api, name, version)
	for {
		w.(http.Flusher).Flush()
		select {
		case <-q.Context().Done():
			return
		case line := <-lines:
			w.Write(line)
		}
	}
}

// report sends a report of a node.
func (r *replay) report(i, round int, b *v1alpha1.Batch) {
	name := fmt.Sprintf("replay-%04d", i)
	o := &v1alpha1.NodeReport{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Status = v1alpha1.NodeReportStatus{Reported: metav1.NowMicro(), Run: "replay", Sequence: int64(round + 1), Batch: *b}
	kind := "MODIFIED"
	if round == 0 {
		kind = "ADDED"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said[name] = time.Now()
	r.send("nodereports", r.event(kind, o))
}

// BenchmarkFiveThousandNodes replays 5000 nodes. Their agents together send a
// hundred reports per second, and each report has a large decrease. The cluster
// has no pods, because the manager does not read them. The benchmark runs only
// with TENON_TEST_LONG=1.
func BenchmarkFiveThousandNodes(b *testing.B) {
	if os.Getenv("TENON_TEST_LONG") != "1" {
		b.Skip("takes minutes: set TENON_TEST_LONG=1")
	}
	nodes, rounds, rate := number("TENON_SCALE_NODES", 5000), 3, number("TENON_SCALE_RATE", 100)
	r := newReplay(b, nodes)
	server := httptest.NewServer(r)
	defer server.CloseClientConnections()
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}]}`, server.URL)
	p := build(b, []byte(kubeconfig)).run(b, client.ObjectKey{Namespace: "replay", Name: "settings"})
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		r.mu.Lock()
		following := len(r.streams["nodereports"]) > 0 && len(r.streams["nodes"]) > 0
		r.mu.Unlock()
		if following {
			break
		}
		if time.Since(start) > time.Minute {
			b.Fatal("the manager does not watch the nodes")
		}
	}
	time.Sleep(2 * time.Second)
	before, from := p.resourceUse(b)
	b.Logf("with %d nodes and no report: %s", nodes, before)
	begun := time.Now()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	left := 9000.0
	for round := range rounds {
		left *= .85
		for i := range nodes {
			<-tick.C
			r.report(i, round, batchOf(9200-int64(left), 4))
		}
	}
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(50 * time.Millisecond) {
		r.mu.Lock()
		open := len(r.said)
		r.mu.Unlock()
		if open == 0 {
			break
		}
	}
	took := time.Since(begun)
	after, to := p.resourceUse(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.delays)
	if len(r.delays) != nodes*rounds {
		b.Fatalf("of %d reports %d had an effect", nodes*rounds, len(r.delays))
	}
	at := func(p float64) time.Duration { return r.delays[min(len(r.delays)-1, int(p*float64(len(r.delays))))] }
	b.Logf("%d reports in %v: report to write p50 %v, p99 %v, most %v", len(r.delays), took.Round(time.Second), at(.5), at(.99), r.delays[len(r.delays)-1])
	b.Logf("the manager: %s, %.0f%% of a CPU; %d writes of nodes, %d of reports", after, 100*(to-from).Seconds()/took.Seconds(), r.patches["nodes"], r.patches["reports"])
	b.ReportMetric(at(.5).Seconds(), "p50-s")
	b.ReportMetric(at(.99).Seconds(), "p99-s")
	b.ReportMetric(100*(to-from).Seconds()/took.Seconds(), "cpu-percent")
}
