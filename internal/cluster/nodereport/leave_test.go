package nodereport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tenon.sh/tenon/api/v1alpha1"
)

// TestTheLastReportSaysThatNoAgentRuns checks that the last report of an agent
// that was removed from its node has no CPUs, so that no scheduler relies on
// CPU sets that no agent writes.
func TestTheLastReportSaysThatNoAgentRuns(t *testing.T) {
	a := &api{exists: true}
	if err := Leave(t.Context(), a, "node-1", "v1", noon); err != nil {
		t.Fatal(err)
	}
	paths, last := a.said()
	if len(paths) != 1 || paths[0] != "/apis/tenon.sh/v1alpha1/nodereports/node-1/status" {
		t.Errorf("%v", paths)
	}
	for _, never := range []string{`"cpus"`, `"batch"`, `"means"`, `"pods"`} {
		if strings.Contains(last, never) {
			t.Errorf("%s is in the last report: %s", never, last)
		}
	}
	var r v1alpha1.NodeReport
	if err := json.Unmarshal([]byte(last), &r); err != nil {
		t.Fatal(err)
	}
	if s := r.Status; s.Run == "" || s.Sequence != 1 || s.Agent != "v1" || !s.Reported.Time.Equal(noon) {
		t.Errorf("a reader cannot see that this is a new report: %+v", s)
	}
	if c := find(r.Status.Conditions, v1alpha1.AgentRuns); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.AgentLeft || c.Message == "" || c.LastTransitionTime.IsZero() {
		t.Errorf("%+v", r.Status.Conditions)
	}
}

func TestANodeWithoutAReportGetsNoLastOne(t *testing.T) {
	a := &api{}
	if err := Leave(t.Context(), a, "node-1", "v1", noon); err != nil {
		t.Error(err)
	}
	if paths, last := a.said(); len(paths) != 1 || last != "" {
		t.Errorf("%v: %s", paths, last)
	}
}

// TestTheLastReportDoesNotHoldUpTheEnd checks that an API server that is away
// cannot keep tenond from its end, and that one that is back in time gets the
// report.
func TestTheLastReportDoesNotHoldUpTheEnd(t *testing.T) {
	away := errors.New("no route to host")
	a := &api{exists: true, fail: away}
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := Leave(short, a, "node-1", "v1", noon); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	a.fail = fmt.Errorf("apply: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "nodereports"}, "node-1", errors.New("gone")))
	if err := Leave(t.Context(), a, "node-1", "v1", noon); !errors.Is(err, a.fail) { // at once, although the context does not end
		t.Errorf("%v", err)
	}
	a.fail = away
	sent := make(chan error)
	go func() { sent <- Leave(t.Context(), a, "node-1", "v1", noon) }()
	for paths, _ := a.said(); len(paths) < 3; paths, _ = a.said() {
		time.Sleep(time.Millisecond)
	}
	a.mu.Lock()
	a.fail = nil
	a.mu.Unlock()
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if _, last := a.said(); !strings.Contains(last, v1alpha1.AgentRuns) {
		t.Error(last)
	}
}
