package kubelet

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// rootOf makes the root directory of a kubelet.
func rootOf(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestTheFilesOfAKubeletSayWhoBindsCPUs asks a kubelet that refuses its API, as
// those before 1.33 do, and reads what its root directory has.
func TestTheFilesOfAKubeletSayWhoBindsCPUs(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer refuses.Close()
	for name, c := range map[string]struct {
		files map[string]string
		want  Facts
		fault string
	}{
		"nothing": {nil, Facts{}, ""},
		"no policy": {map[string]string{cpuState: `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`},
			Facts{CPUManagerPolicy: "none"}, ""},
		"the static policy": {map[string]string{cpuState: `{"policyName":"static","defaultCpuSet":"0-7","entries":{"u":{"c":"2-3"}},"checksum":14413152}`},
			Facts{CPUManagerPolicy: "static"}, ""},
		"a driver": {map[string]string{cpuState: `{"policyName":"none"}`, "plugins_registry/dra.cpu-reg.sock": ""},
			Facts{CPUManagerPolicy: "none", CPUDriver: CPUDriver}, ""},
		"a driver during an update": {map[string]string{"plugins_registry/dra.cpu-0a1b-reg.sock": ""}, Facts{CPUDriver: CPUDriver}, ""},
		"another driver":            {map[string]string{"plugins_registry/gpu.example.com-reg.sock": ""}, Facts{}, ""},
		"a torn file":               {map[string]string{cpuState: `{"policyNa`}, Facts{}, "unexpected end of JSON input"},
	} {
		k, err := Open(Options{URL: refuses.URL, As: &rest.Config{}, Root: rootOf(t, c.files)})
		if err != nil {
			t.Fatal(err)
		}
		facts, err := k.Facts(t.Context())
		if facts != c.want || !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %+v, %v; want %+v and %q", name, facts, err, c.want, c.fault)
		}
	}
}

// A refusing kubelet refuses its API, and has files.
type refusing struct{ files Facts }

func (refusing) Pods(context.Context) ([]corev1.Pod, bool, error) { return nil, false, ErrRefused }
func (r refusing) Facts(context.Context) (Facts, error)           { return r.files, ErrRefused }

// TestAKubeletThatRefusesIsKnownByItsFiles: Tenon must leave the CPUs to such a
// kubelet if it binds them.
func TestAKubeletThatRefusesIsKnownByItsFiles(t *testing.T) {
	s, _ := watch(t, refusing{Facts{CPUManagerPolicy: "static"}}, &second{pod: "a"}, time.Minute)
	eventually(t, "the policy is known", func() bool { return s.Known().Facts == Facts{CPUManagerPolicy: "static"} })
	eventually(t, "the pods are those of the API server", func() bool { return s.Known().From == "API server" })
}
