package nodereport

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestAnObserverOffersNothing reports a tick of an observer. What the manager would
// publish and what the scheduler would divide must be in the shadow alone, and no
// condition may say that a feature is in force.
func TestAnObserverOffersNothing(t *testing.T) {
	v := view()
	v.Tick.Batch.CPU = node.Amount[unit.MilliCPU]{Value: 700, Policy: "usage"}
	v.Tick.Promises = []promise.Promise{{Hours: 1, Percent: 90, CPU: promise.Amount[unit.MilliCPU]{Code: promise.Known, Value: 400}}}
	acts := Status(v, nil)
	if acts.Shadow != nil || acts.Batch.CPU == nil || acts.Promises == nil || find(acts.Conditions, KnobsWritten).Type == "" {
		t.Fatalf("an agent that acts reports %+v", acts)
	}
	v.Tick.Shadow = &tick.Shadow{Total: map[plan.Owner]int64{plan.OwnerSuppress: 12, plan.OwnerMemory: 3}}
	got := Status(v, nil)
	if got.Batch != (v1alpha1.Batch{}) || got.Promises != nil || got.CPUs != nil || got.Isolation != "" {
		t.Errorf("an observer offers %+v", got)
	}
	s := got.Shadow
	if s == nil || s.Batch.CPU == nil || s.Batch.CPU.Amount.MilliValue() != 700 || s.Promises == nil {
		t.Fatalf("the shadow is %+v", s)
	}
	if want := (v1alpha1.ShadowSteps{Policy: "memory", Count: 3}); len(s.Steps) != 2 || s.Steps[0] != want {
		t.Errorf("the steps are %+v", s.Steps)
	}
	for _, c := range got.Conditions {
		if c.Type != ConfigAccepted && c.Type != PodsKnown && c.Type != AgentHealthy {
			t.Errorf("an observer has the condition %s", c.Type)
		}
	}
}

// TestAnObserverWithNothingToSaySaysThatItObserves sends the report of an observer without
// amounts, promises and writes, as without colocation-config. An empty object is not sent.
func TestAnObserverWithNothingToSaySaysThatItObserves(t *testing.T) {
	v := view()
	v.Tick.Batch, v.Tick.Promises, v.Tick.Shadow = node.Batch{}, nil, &tick.Shadow{}
	a := &api{exists: true}
	s := NewSender(a, "node-1", func() types.UID { return "" }, slog.New(slog.DiscardHandler))
	if err := s.send(context.Background(), Status(v, nil)); err != nil {
		t.Fatal(err)
	}
	_, last := a.said()
	var stored v1alpha1.NodeReport
	if err := json.Unmarshal([]byte(last), &stored); err != nil {
		t.Fatal(err)
	}
	if d := nodepages.Doctor([]nodepages.Node{{Node: new(corev1.Node), Report: &stored}}, nil, nil, v.Tick.Begun); len(d.Observing) != 1 {
		t.Errorf("doctor finds %d observers in %s", len(d.Observing), last)
	}

	// A definition that lacks the field leaves nothing of the shadow.
	s.fields, s.asked = &apiserver.Fields{Properties: map[string]*apiserver.Fields{"status": {Properties: map[string]*apiserver.Fields{
		"reported": {}, "shadow": {Properties: map[string]*apiserver.Fields{"batch": {}}},
	}}}}, time.Now()
	if err := s.send(context.Background(), Status(v, nil)); err != nil {
		t.Fatal(err)
	}
	if _, last := a.said(); strings.Contains(last, "shadow") {
		t.Errorf("an empty object is in %s", last)
	}
}
