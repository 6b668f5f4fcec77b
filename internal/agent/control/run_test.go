package control

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// TestAFrozenWorkloadIsShownAsSuch checks that the explanation and the list add
// the word frozen to the workload's name.
func TestAFrozenWorkloadIsShownAsSuch(t *testing.T) {
	for v, want := range map[node.Value]string{nil: "", node.Running: "", node.Frozen: " (frozen)", node.Ended: " (ended)"} {
		l := NewLedger("v1")
		turn := measuredTick(time.Second, 800)
		if v != nil {
			turn.Snapshot.Knobs.Now[node.Knob{Cgroup: "batch.slice/job.service", File: node.FileRun}] = v
		}
		l.Observe(turn, nil)
		e, err := l.ExplainWorkload("job.service")
		if err != nil {
			t.Fatal(err)
		}
		if line, _, _ := strings.Cut(e.String(), ":"); line != "batch.slice/job.service"+want {
			t.Errorf("%v: %q", v, line)
		}
	}
}
