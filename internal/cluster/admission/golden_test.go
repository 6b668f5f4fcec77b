package admission

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/yaml"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/config"
)

var update = flag.Bool("update", false, "rewrite the pods as they are created")

// TestPodsAsTheyAreCreated applies the webhooks to whole manifests.
// NAME.in.yaml contains a pod and the objects of the cluster. NAME.out.yaml
// contains the messages and the changed pod.
func TestPodsAsTheyAreCreated(t *testing.T) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d manifests, %v; want at least ten", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".in.yaml"), func(t *testing.T) {
			got := createPod(t, path)
			golden := strings.TrimSuffix(path, ".in.yaml") + ".out.yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v (go test -update makes it)", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the pod changed (-want +got):\n%s", diff)
			}
		})
	}
}

// createPod returns the messages about the pod in a file, and the changed pod.
func createPod(t *testing.T, path string) []byte {
	t.Helper()
	r := request(t, path)
	p, said := Mutate(r)
	judged := ValidateCreate(p, tenant.Namespace{Name: "default"}, r.ColocationOff, r.Ranges)
	var b bytes.Buffer
	for _, w := range append(said.Warnings, judged.Warnings...) {
		fmt.Fprintf(&b, "# warning: %s\n", w)
	}
	for _, r := range append(said.Refusals, judged.Refusals...) {
		fmt.Fprintf(&b, "# refused: %s\n", r)
	}
	if said.Allowed() && judged.Allowed() {
		text, err := yaml.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(strings.ReplaceAll(string(text), "status: {}\n", ""))
	}
	return b.Bytes()
}

// request reads a pod and the objects of its cluster from a file.
func request(t *testing.T, path string) Request {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := Request{PriorityClasses: map[string]schedulingv1.PriorityClass{}, Scheduler: "tenon-scheduler"}
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind struct{ Kind string }
		read := func(v any) {
			if err := yaml.UnmarshalStrict(doc, v); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch kind.Kind {
		case "Pod":
			r.Pod = &corev1.Pod{}
			read(r.Pod)
		case "Namespace":
			r.Namespace = &corev1.Namespace{}
			read(r.Namespace)
		case "PriorityClass":
			var c schedulingv1.PriorityClass
			read(&c)
			r.PriorityClasses[c.Name] = c
		case "ConfigMap":
			var m corev1.ConfigMap
			read(&m)
			cluster, faults := config.ParseConfigMap(m.Data)
			if len(faults) > 0 {
				t.Fatalf("%s: %v", path, faults)
			}
			r.ColocationOff = !cluster.Colocates()
		case "ClusterColocationProfile":
			var p configv1alpha1.ClusterColocationProfile
			read(&p)
			r.Profiles = append(r.Profiles, p)
		default:
			t.Fatalf("%s: no reader for %q", path, kind.Kind)
		}
	}
	return r
}
