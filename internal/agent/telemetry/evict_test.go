package telemetry

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/evict"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
)

// TestEvictionsAreCountedOnceEach checks the counts by reason. The step that
// asks a workload to end must count. A failed step must not count, and neither
// must the SIGKILL that follows.
func TestEvictionsAreCountedOnceEach(t *testing.T) {
	m := New("test")
	turn := tickAt(1)
	run := func(group string) node.Knob {
		return node.Knob{Cgroup: node.CgroupPath(group), File: node.FileRun}
	}
	turn.Victims = map[node.WorkloadID]evict.Victim{}
	step := func(group string, v node.Run, cause evict.Cause, err error) {
		turn.Done = append(turn.Done, tick.Outcome{Step: plan.Step{Knob: run(group), To: v, Owner: plan.OwnerEvict}, Err: err})
		turn.Snapshot.Workloads = append(turn.Snapshot.Workloads, node.Workload{ID: node.WorkloadID("pod " + group), Class: node.BE, Cgroup: run(group).Cgroup})
		turn.Victims[node.WorkloadID("pod "+group)] = evict.Victim{Cause: cause}
	}
	step("a", node.AskedToEnd, evict.CauseMemory, nil)
	step("b", node.AskedToEnd, evict.CauseMemory, nil)
	step("c", node.AskedToEnd, evict.CauseMemory, errors.New("refused"))
	step("d", node.AskedToEnd, evict.CauseCPU, nil)
	step("e", node.Ended, evict.CauseMemory, nil)
	turn.Snapshot.Knobs.Now = map[node.Knob]node.Value{run("f"): node.Frozen, run("g"): node.Frozen, run("h"): node.Running}
	turn.Snapshot.Knobs.Before = map[node.Knob]node.Value{run("f"): node.Running}
	m.Observe(turn, nil, time.Second)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`tenon_evictions_total{reason="memory"} 2`, `tenon_evictions_total{reason="cpu"} 1`,
		"tenon_workloads_frozen 1",
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
}
