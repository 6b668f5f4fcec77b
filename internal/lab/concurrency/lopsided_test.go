package concurrency

import (
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
)

// TestALopsidedWaveCountsOnce runs three jobs on two nodes, twice. Each time a
// node has two of them. The warning counts waves, not the parts on the nodes.
func TestALopsidedWaveCountsOnce(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	var all []jobs.Job
	for run := 1; run <= 2; run++ {
		for i, host := range []string{"a", "a", "b"} {
			j := jobs.Job{Host: host, Type: "quota", Concurrency: 3, CPU: 500, Index: i, In: at, Out: at.Add(5 * time.Second)}
			j.Extra.Run, j.Extra.Block = run, run
			all = append(all, j)
		}
		at = at.Add(time.Minute)
	}
	want := "In 2 waves the nodes had different numbers of jobs; each job counts by those that ran beside it on its node."
	if r := Analyse(Experiment{Blocks: 2}, all); !slices.Contains(r.Warnings, want) {
		t.Errorf("warnings %q, want %q among them", r.Warnings, want)
	}
}
