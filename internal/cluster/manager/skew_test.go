package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/cluster/nodereport"
)

// former has the CustomResourceDefinition of the release before this one, and a report
// with every field that it has.
const former = "testdata/former/"

// reportsCRD reads a CustomResourceDefinition of the reports.
func reportsCRD(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// without returns a CRD whose reports lack the field at a path of properties.
func without(t *testing.T, crd *unstructured.Unstructured, path ...any) *unstructured.Unstructured {
	t.Helper()
	crd = crd.DeepCopy()
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	at := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"]
	for _, key := range path[:len(path)-1] {
		at = at.(map[string]any)["properties"].(map[string]any)[key.(string)]
		if items, is := at.(map[string]any)["items"]; is {
			at = items
		}
	}
	fields := at.(map[string]any)["properties"].(map[string]any)
	last := path[len(path)-1].(string)
	if fields[last] == nil {
		t.Fatalf("the CRD has no %v", path)
	}
	delete(fields, last)
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	return crd
}

// setCRD replaces the CRD of the reports. It takes the API server some seconds to check
// by it.
func (s *scene) setCRD(crd *unstructured.Unstructured) {
	s.t.Helper()
	var now unstructured.Unstructured
	now.SetGroupVersionKind(crd.GroupVersionKind())
	s.must(s.client.Get(s.ctx, client.ObjectKeyFromObject(crd), &now))
	next := crd.DeepCopy()
	next.SetResourceVersion(now.GetResourceVersion())
	next.SetAnnotations(now.GetAnnotations())
	s.must(s.client.Update(s.ctx, next))
}

// A safeBuffer is a log that a test reads while it is written.
type safeBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// TestAgentsReportToTheCRDOfAnOlderRelease upgrades in the wrong order: the agents are
// new, and the CRD of the reports is old. The report must be stored without the fields
// that this CRD lacks, and with them as soon as the CRD is new.
func TestAgentsReportToTheCRDOfAnOlderRelease(t *testing.T) {
	s := newScene(t)
	present := reportsCRD(t, "../../../deploy/crds/tenon.sh_nodereports.yaml")
	api, err := apiserver.Open(s.rc)
	if err != nil {
		t.Fatal(err)
	}
	var log safeBuffer
	sender := nodereport.NewSender(api, "skew", func() types.UID { return "" }, slog.New(slog.NewTextHandler(&log, nil)))
	go sender.Run(s.ctx)
	status := v1alpha1.NodeReportStatus{Run: "skew", Batch: *batchOf(4000, 4), Isolation: "cpu.idle", Trials: &v1alpha1.Trials{Trying: "sched_ext"}}
	status.CPUs = &v1alpha1.CPUs{Caches: []v1alpha1.Cache{{CPUs: "0-15"}}, Pods: []v1alpha1.PodCPUs{{UID: "a", CPUs: "0-1", By: "scheduler"}}}
	// offered sends one report more, until what is stored is as wanted.
	offered := func(what string, is func(v1alpha1.NodeReportStatus) bool) {
		t.Helper()
		var stored v1alpha1.NodeReport
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			status.Sequence, status.Reported = status.Sequence+1, metav1.NowMicro()
			sender.Offer(status)
			err := s.client.Get(s.ctx, client.ObjectKey{Name: "skew"}, &stored)
			if err == nil && stored.Status.Sequence > status.Sequence-5 && is(stored.Status) {
				return
			}
		}
		t.Fatalf("%s: %+v\n%s", what, stored.Status, log.String())
	}
	offered("the CRD of this release", func(r v1alpha1.NodeReportStatus) bool {
		return r.Isolation == "cpu.idle" && r.CPUs != nil && len(r.CPUs.Pods) == 1 && r.CPUs.Pods[0].By == "scheduler"
	})
	t.Cleanup(func() { s.setCRD(present) })

	old := without(t, without(t, without(t, present, "status", "isolation"), "status", "trials"), "status", "cpus", "pods", "by")
	s.setCRD(old)
	status.Run = "old"
	offered("an older CRD", func(r v1alpha1.NodeReportStatus) bool {
		return r.Run == "old" && r.Isolation == "" && r.Trials == nil && len(r.CPUs.Pods) == 1 && r.CPUs.Pods[0].By == "" && r.CPUs.Pods[0].CPUs == "0-1" && r.Batch.CPU.Amount.MilliValue() > 0
	})
	offered("the log names the fields", func(v1alpha1.NodeReportStatus) bool {
		return strings.Contains(log.String(), "[.status.cpus.pods.by .status.isolation .status.trials]")
	})

	s.setCRD(reportsCRD(t, former+"tenon.sh_nodereports.yaml"))
	s.setCRD(present)
	renewed := nodereport.NewSender(api, "skew", func() types.UID { return "" }, slog.New(slog.NewTextHandler(&log, nil)))
	go renewed.Run(s.ctx) // the sender above tries the whole report after minutes
	sender, status.Run = renewed, "new"
	offered("the CRD of this release again", func(r v1alpha1.NodeReportStatus) bool {
		return r.Run == "new" && r.Isolation == "cpu.idle" && r.Trials != nil && len(r.CPUs.Pods) == 1 && r.CPUs.Pods[0].By == "scheduler"
	})
}

// TestAReportOfTheFormerReleaseIsAccepted sends a report with every field that the
// former release knows, as an agent of it does. The CRD and the manager of this release
// must know each of them, and the values must have the same types.
func TestAReportOfTheFormerReleaseIsAccepted(t *testing.T) {
	text, err := os.ReadFile(former + "report.json")
	if err != nil {
		t.Fatal(err)
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	var report v1alpha1.NodeReport
	if err := strict.Decode(&report); err != nil {
		t.Errorf("the manager does not read it: %v", err)
	}
	s := newScene(t)
	api, err := apiserver.Open(s.rc)
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/apis/%s/nodereports/former", v1alpha1.GroupVersion)
	s.must(api.Apply(s.ctx, path, nodereport.Owner, map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeReport", "metadata": map[string]any{"name": "former"}}))
	s.must(api.Apply(s.ctx, path+"/status", nodereport.Owner, json.RawMessage(text)))
}
