package control

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// promise holds the batch resources of a node with 16 CPUs.
var promise = node.Batch{
	CPU: node.Amount[unit.MilliCPU]{
		Value: 7200, Policy: "usage", Over: 5 * time.Minute, Since: noon, Formula: 7500, Held: "more is promised every 1m0s",
		Terms: []node.Term[unit.MilliCPU]{
			{Name: node.TermCapacity, Amount: 9600, Text: "60% of 16000m"},
			{Name: node.TermNode, Amount: -400, Text: "used by the system"},
			{Name: "LS", Amount: -2000, Text: "used by LS"},
		},
	},
	Memory: node.Amount[unit.Bytes]{Policy: "request", Since: noon, Degraded: "the size of the node's memory is unknown for more than 15m0s: nothing is promised"},
}

func TestBatchWorkIsExplainedTermByTerm(t *testing.T) {
	l := NewLedger("v1")
	turn := measuredTick(64*time.Second, 800)
	turn.Batch = promise
	l.Observe(turn, nil)
	const want = `batch-cpu 7200m: what batch work may count on, by usage over 5m0s, since 2026-03-01 12:00:00 (1m04s)
         9600m  60% of 16000m
  -       400m  used by the system
  -      2000m  used by LS
  =      7200m
  now     the formula gives 7500m: more is promised every 1m0s

batch-memory 0Mi: what batch work may count on, by request, since 2026-03-01 12:00:00 (1m04s)
  because the size of the node's memory is unknown for more than 15m0s: nothing is promised
`
	for _, name := range []string{"batch", "batch-cpu", "batch-memory"} {
		e, err := l.ExplainWorkload(name)
		if err != nil || e.String() != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, e, want)
		}
	}
	shown, _, _ := strings.Cut(want, "  now")
	for _, page := range []string{"README.md", "docs/tenond.md"} {
		text, err := os.ReadFile("../../../" + page)
		if err != nil || !strings.Contains(string(text), "$ tenon explain batch\n"+shown) {
			t.Errorf("%s shows another text (%v) than\n%s", page, err, shown)
		}
	}
	if text := l.Status().String(); !strings.Contains(text, "batch      batch-cpu 7200m, batch-memory 0Mi; the size of the node's memory is unknown") {
		t.Errorf("the status lacks the amounts:\n%s", text)
	}
	var s Status
	data, err := json.Marshal(l.Status())
	if err = errors.Join(err, json.Unmarshal(data, &s)); err != nil || s.Batch.CPU.String() != promise.CPU.String() {
		t.Errorf("as JSON: %v, %s", err, s.Batch)
	}
}

func TestWithoutColocationNothingIsPromised(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(measuredTick(time.Second, 800), nil)
	e, err := l.ExplainWorkload("batch")
	if err != nil || e.String() != "Batch work is promised nothing: colocation-config is not enabled.\n" {
		t.Errorf("%v, %s", err, e)
	}
	if data, err := json.Marshal(l.Status()); err != nil || strings.Contains(string(data), `"batch":`) {
		t.Errorf("%s, %v", data, err)
	}
}

func TestAWorkloadNamedBatchComesFirst(t *testing.T) {
	l := NewLedger("v1")
	turn := measuredTick(time.Second, 800)
	turn.Snapshot.Workloads[0].ID, turn.Batch = "jobs/batch", promise
	l.Observe(turn, nil)
	if e, err := l.ExplainWorkload("batch"); err != nil || e.Workload == nil || e.Batch != nil {
		t.Errorf("%v, %s", err, e)
	}
	if e, err := l.ExplainWorkload("batch-cpu"); err != nil || e.Batch == nil {
		t.Errorf("%v, %s", err, e)
	}
}
