package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	nodes   = `{"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "node-1"}, "status": {"capacity": {"cpu": "16"}, "allocatable": {"kubernetes.io/batch-cpu": "7200"}}}]}`
	reports = `{"kind": "NodeReportList", "apiVersion": "tenon.sh/v1alpha1", "items": [{"metadata": {"name": "node-1"}, "status": {"reported": "2026-03-01T11:59:56.000000Z",
		"batch": {"cpu": {"amount": "7200m", "policy": "usage", "formula": "7200m", "terms": [{"name": "capacity", "amount": "7200m", "text": "45% of 16000m"}]}},
		"published": {"cpu": "7200m", "reason": "as the agent reports"}}}]}`
)

// kubectl runs the plugin against an API server that serves these paths.
func kubectl(t *testing.T, paths map[string]string, args ...string) (string, error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, known := paths[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !known {
			w.WriteHeader(http.StatusNotFound)
			text = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "the server could not find the requested resource"}`
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root := newRootCommand(func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) })
	root.SetOut(&out)
	root.SetArgs(append(args, "--kubeconfig", config))
	err := root.ExecuteContext(context.Background())
	return out.String(), err
}

var installed = map[string]string{"/api/v1/nodes": nodes, "/apis/tenon.sh/v1alpha1/nodereports": reports}

func TestPagesAreMadeOfNodesAndReports(t *testing.T) {
	for want, args := range map[string][]string{
		"=      7200m\n":                            {"explain", "node", "node-1"},
		"as the agent reports\n":                    {"explain", "node", "node-1"},
		"node-1  -    -     -       -        7200m": {"top"},
		"1 node, 1 with a report\n":                 {"doctor"},
	} {
		if out, err := kubectl(t, installed, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("kubectl tenon %v: %v\n%s\nwant %q", args, err, out, want)
		}
	}
}

func TestDoctorEndsWithOneIfAnythingIsWrong(t *testing.T) {
	_, err := kubectl(t, map[string]string{"/api/v1/nodes": nodes, "/apis/tenon.sh/v1alpha1/nodereports": `{"kind": "NodeReportList", "apiVersion": "tenon.sh/v1alpha1", "items": []}`}, "doctor")
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

func TestErrorsSayWhatIsMissing(t *testing.T) {
	for want, run := range map[string]func() (string, error){
		"list nodereports.tenon.sh, which Tenon's chart brings": func() (string, error) { return kubectl(t, map[string]string{"/api/v1/nodes": nodes}, "top") },
		`there is no node "node-2": the cluster has node-1`:     func() (string, error) { return kubectl(t, installed, "explain", "node", "node-2") },
		`find the cluster: context "x" does not exist`:          func() (string, error) { return kubectl(t, installed, "top", "--context", "x") },
	} {
		if _, err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
