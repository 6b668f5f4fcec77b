package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

const (
	nodes   = `{"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "node-1"}, "status": {"capacity": {"cpu": "16"}, "allocatable": {"kubernetes.io/batch-cpu": "7200"}}}]}`
	reports = `{"kind": "NodeReportList", "apiVersion": "tenon.sh/v1alpha1", "items": [{"metadata": {"name": "node-1"}, "status": {"reported": "2026-03-01T11:59:56.000000Z",
		"batch": {"cpu": {"amount": "7200m", "policy": "usage", "formula": "7200m", "terms": [{"name": "capacity", "amount": "7200m", "text": "45% of 16000m"}]}},
		"published": {"cpu": "7200m", "reason": "as the agent reports"},
		"cpus": {"caches": [{"socket": 0, "numa": 0, "l3": 0, "cpus": "0-15"}], "keep": 1, "pods": [{"uid": "u1", "policy": "exclusive", "cpus": "0-3", "by": "scheduler"}]}}}]}`
	pods = `{"kind": "PodList", "apiVersion": "v1", "items": [
		{"metadata": {"name": "db", "namespace": "default", "uid": "u1", "annotations": {"cpuset-scheduler": "true"}}, "spec": {"nodeName": "node-1", "containers": [{"name": "c", "resources": {"limits": {"cpu": "4"}}}]}},
		{"metadata": {"name": "db", "namespace": "shop", "uid": "u2", "annotations": {"cpuset-scheduler": "true"}}, "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "14"}}}]}}]}`
)

// notFound is the answer to a path that the server does not know.
const notFound = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "the server could not find the requested resource"}`

// refusal returns the answer of an API server that refuses a request.
func refusal(code int, reason, message string) string {
	text, _ := json.Marshal(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message})
	return string(text)
}

// selected keeps the items of a list that match a field selector. It knows the
// selectors that the plugin sends.
func selected(text, selector string) string {
	field, value, _ := strings.Cut(selector, "=")
	var list map[string]any
	if selector == "" || json.Unmarshal([]byte(text), &list) != nil {
		return text
	}
	items, _ := list["items"].([]any)
	list["items"] = slices.DeleteFunc(items, func(item any) bool {
		at := item
		for key := range strings.SplitSeq(strings.Replace(field, "source", "reportingComponent", 1), ".") {
			of, _ := at.(map[string]any)
			at = of[key]
		}
		has, _ := at.(string)
		return has != value
	})
	out, _ := json.Marshal(list)
	return string(out)
}

// kubectl runs the plugin against an API server with answers for these paths. A
// path for a POST begins with "POST ". Without a path for it, a new pod is
// accepted unchanged, and added to the path "sent" if that is set. A Status is
// sent with its code.
func kubectl(t *testing.T, paths map[string]string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand(func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) })
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(args, "--kubeconfig", serve(t, paths)))
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

// accepted returns the pod of a request as an answer.
func accepted(t *testing.T, r *http.Request) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Error(err)
	}
	pod, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		t.Error(err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// serve starts an API server with these paths. It returns the path of its kubeconfig.
func serve(t *testing.T, paths map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		path := r.URL.Path
		if r.Method == http.MethodPost {
			path = "POST " + path
		} else if r.Method != http.MethodGet {
			t.Errorf("%s %s changes something", r.Method, path)
		}
		text, known := paths[path]
		isPod := strings.HasPrefix(path, "POST /api/v1/namespaces/") && strings.HasSuffix(path, "/pods")
		if isPod && r.URL.Query().Get("dryRun") != "All" {
			t.Errorf("%s stores a pod", path)
		}
		if isPod && (r.URL.Query().Get("fieldValidation") != "Strict" || r.Header.Get("Content-Type") != "application/json") {
			t.Errorf("%s does not let the API server refuse unknown fields", path)
		}
		switch {
		case isPod && !known:
			text = accepted(t, r)
			if _, wanted := paths["sent"]; wanted {
				paths["sent"] += text + "\n"
			}
		case !known:
			text = notFound
		}
		var status struct {
			Kind string
			Code int
		}
		if warning := paths["warning"]; isPod && warning != "" {
			w.Header().Set("Warning", `299 - "`+warning+`"`)
		}
		if json.Unmarshal([]byte(text), &status) == nil && status.Kind == "Status" && status.Code > 0 {
			w.WriteHeader(status.Code)
		}
		fmt.Fprint(w, selected(text, r.URL.Query().Get("fieldSelector")))
	}))
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

const (
	pathLeases = "/apis/coordination.k8s.io/v1/leases"
	pathEvents = "/api/v1/events"
	// leases has the Lease of Kubernetes' scheduler, which runs.
	leases = `{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "items": [{"metadata": {"namespace": "kube-system", "name": "kube-scheduler"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:58.000000Z"}}]}`
	events = `{"kind": "EventList", "apiVersion": "v1", "items": []}`
)

var installed = map[string]string{"/api/v1/nodes": nodes, "/api/v1/pods": pods, "/apis/tenon.sh/v1alpha1/nodereports": reports, pathLeases: leases, pathEvents: events,
	"/api/v1/namespaces/default": `{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default"}}`}

// with returns changed paths. changes are pairs of a path and its text.
func with(paths map[string]string, changes ...string) map[string]string {
	all := maps.Clone(paths)
	for i := 0; i < len(changes); i += 2 {
		all[changes[i]] = changes[i+1]
	}
	return all
}

// TestTheFlagsOfKubectlChooseTheUser records the headers of the requests. The
// kubeconfig has two users. Over plain HTTP, a client sends no token.
func TestTheFlagsOfKubectlChooseTheUser(t *testing.T) {
	var headers http.Header
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers = r.Header
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, installed[r.URL.Path])
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}, {name: d, cluster: {server: '" + server.URL + "', insecure-skip-tls-verify: true}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}, {name: v, user: {token: t2}}]\ncurrent-context: c\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]http.Header{
		"explain node node-1 --cluster d":                                            {},
		"explain node node-1 --cluster=d --as=b":                                     {"Impersonate-User": {"b"}},
		"explain node node-1 --cluster d --as a --as-group g --as-group h":           {"Impersonate-User": {"a"}, "Impersonate-Group": {"g", "h"}},
		"explain node node-1 --cluster d --user v":                                   {"Authorization": {"Bearer t2"}},
		"explain node node-1 --token t3 --insecure-skip-tls-verify -s " + server.URL: {"Authorization": {"Bearer t3"}},
	} {
		root := newRootCommand(time.Now)
		root.SetOut(io.Discard)
		root.SetArgs(append(strings.Fields(line), "--kubeconfig", config))
		if err := root.Execute(); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		for _, key := range []string{"Impersonate-User", "Impersonate-Group", "Authorization"} {
			if !slices.Equal(headers[key], want[key]) {
				t.Errorf("%s: %s is %q, want %q", line, key, headers[key], want[key])
			}
		}
	}
}

func TestPagesAreMadeOfNodesAndReports(t *testing.T) {
	for want, args := range map[string][]string{
		"=      7200m\n":                            {"explain", "node", "node-1"},
		"as the agent reports\n":                    {"explain", "node", "node-1"},
		"node-1  -    -     -       -        7200m": {"top"},
		"1 node, 1 with a report\n":                 {"doctor"},
		"node-1  12 of 16  OOOO............":        {"top"},
		"It has 4 CPUs (0-3) of node-1 for itself":  {"explain", "pod", "db"},
		"0 of 1 node would take it now":             {"explain", "pod", "shop/db"},
		"shop/db asks for 14 CPUs of its own":       {"explain", "pod", "db", "-n", "shop"},
		"A  exclusive  default/db  4 CPUs: 0-3":     {"map", "node-1"},
	} {
		if out, err := kubectl(t, installed, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("kubectl tenon %v: %v\n%s\nwant %q", args, err, out, want)
		}
	}
}

func TestDoctorEndsWithOneIfAnythingIsWrong(t *testing.T) {
	_, err := kubectl(t, with(installed, "/apis/tenon.sh/v1alpha1/nodereports", `{"kind": "NodeReportList", "apiVersion": "tenon.sh/v1alpha1", "items": []}`), "doctor")
	if !errors.Is(err, errUnhealthy) {
		t.Errorf("doctor without reports: %v", err)
	}
}

func TestDoctorAsksTheProfilesToo(t *testing.T) {
	paths := map[string]string{"/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles": `{"kind": "ClusterColocationProfileList", "apiVersion": "config.koordinator.sh/v1alpha1", "items": [
		{"metadata": {"name": "spark"}, "status": {"conditions": [{"type": "Applied", "status": "False", "reason": "PodsMissed", "message": "default/job runs without it"}]}}]}`}
	maps.Copy(paths, installed)
	if out, err := kubectl(t, paths, "doctor"); !errors.Is(err, errUnhealthy) || !strings.Contains(out, "ClusterColocationProfile spark: Applied: PodsMissed") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
}

func TestDoctorAndTopSayWhichPodsHaveNoCPUs(t *testing.T) {
	refused := strings.Replace(reports, `{"uid": "u1", "policy": "exclusive", "cpus": "0-3", "by": "scheduler"}`, `{"uid": "u1", "pod": "default/db", "why": "requests 4 CPUs of its own and is treated as LS: none is open"}`, 1)
	paths := with(installed, "/apis/tenon.sh/v1alpha1/nodereports", refused)
	const why = " asks for CPUs and has none: it requests 4 CPUs of its own and is treated as LS: none is open\n"
	if out, err := kubectl(t, paths, "doctor"); !errors.Is(err, errUnhealthy) || !strings.Contains(out, "\nProblems\n  node-1: default/db"+why) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := kubectl(t, with(paths, "/api/v1/pods", refusal(403, "Forbidden", "no pods")), "doctor"); !errors.Is(err, errUnhealthy) || !strings.Contains(out, "  node-1: 1 pod"+why) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := kubectl(t, paths, "top"); err != nil || !strings.Contains(out, "  1 pod asks for CPUs and has none\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestFitEndsWithOneIfAPodWouldWait(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pods.yaml")
	for cpus, want := range map[string]error{"4": nil, "12": errNoRoom} {
		text := "kind: Pod\nmetadata: {name: p, annotations: {cpuset-scheduler: 'true'}}\nspec: {containers: [{name: c, resources: {limits: {cpu: '" + cpus + "'}}}]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := kubectl(t, withRoom, "fit", file); !errors.Is(err, want) || !strings.Contains(out, "of 1 pod would find a place now") {
			t.Errorf("%s CPUs: %v\n%s", cpus, err, out)
		}
	}
}

// TestFitAppliesTheProfiles checks a profile that makes each pod LSR. The user
// may not create pods. The API server of the test has no namespaces, and fit
// must say so.
func TestFitAppliesTheProfiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, resources: {requests: {cpu: 12}, limits: {cpu: 12}}}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles": `{"kind": "ClusterColocationProfileList", "apiVersion": "config.koordinator.sh/v1alpha1", "items": [
		{"metadata": {"name": "own"}, "spec": {"qosClass": "LSR"}}]}`}
	maps.Copy(paths, withRoom)
	paths[pathPods], paths[pathReview] = refusal(403, "Forbidden", "pods is forbidden"), review("false")
	out, err := kubectl(t, paths, "fit", file)
	for _, want := range []string{"12 CPUs of its own", "p: as ClusterColocationProfile own makes it", "because you may not create pods there.\n", "Not looked at: namespaces, which profiles select or which are left alone (", "Not looked at: priority classes"} {
		if !errors.Is(err, errNoRoom) || !strings.Contains(out, want) {
			t.Errorf("%v, want %q in\n%s", err, want, out)
		}
	}
}

// withRoom is a node that passes the checks of kube-scheduler.
var withRoom = map[string]string{
	"/api/v1/nodes": `{"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "node-1"}, "status": {"allocatable": {"cpu": "32", "pods": "10"}}}]}`,
	"/api/v1/pods":  pods, "/apis/tenon.sh/v1alpha1/nodereports": reports, pathLeases: leases, pathEvents: events,
}

func TestThePictureGoesToAFile(t *testing.T) {
	dir := t.TempDir()
	for flag, want := range map[string]string{"--svg": "<svg xmlns", "--html": "<!doctype html>"} {
		file := filepath.Join(dir, "map")
		if out, err := kubectl(t, installed, "map", "node-1", flag, file); err != nil || out != "wrote "+file+"\n" {
			t.Fatalf("%v\n%s", err, out)
		}
		if out, err := kubectl(t, installed, "map", "node-1", flag, "-"); err != nil || !strings.HasPrefix(out, want) || strings.Contains(out, "wrote") {
			t.Errorf("%s -: %v\n%s", flag, err, out)
		}
		if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), want) || !strings.Contains(string(text), "default/db") {
			t.Errorf("%s wrote %s (%v)", flag, text, err)
		}
	}
}

func TestErrorsSayWhatIsMissing(t *testing.T) {
	for want, run := range map[string]func() (string, error){
		"list nodereports.tenon.sh, which Tenon's chart brings": func() (string, error) { return kubectl(t, map[string]string{"/api/v1/nodes": nodes}, "top") },
		`there is no node "node-2": the cluster has node-1`:     func() (string, error) { return kubectl(t, installed, "explain", "node", "node-2") },
		`find the cluster: context "x" does not exist`:          func() (string, error) { return kubectl(t, installed, "top", "--context", "x") },
		"list the pods of all namespaces": func() (string, error) {
			return kubectl(t, map[string]string{"/api/v1/nodes": nodes, "/apis/tenon.sh/v1alpha1/nodereports": reports}, "map", "node-1")
		},
		`there is no pod "web" in namespace default`:         func() (string, error) { return kubectl(t, installed, "explain", "pod", "web") },
		`there is no namespace "nosuch"`:                     func() (string, error) { return kubectl(t, installed, "explain", "pod", "web", "-n", "nosuch") },
		`there is no node "node-2" (the cluster has node-1)`: func() (string, error) { return kubectl(t, installed, "map", "node-2") },
		"/nowhere.yaml: open":                                func() (string, error) { return kubectl(t, installed, "fit", "/nowhere.yaml") },
	} {
		if _, err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
