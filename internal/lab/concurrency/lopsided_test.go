package concurrency

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
)

// TestALopsidedWaveCountsOnce runs three jobs on two nodes, twice. Each time one
// node has two jobs. The warning counts each wave once, and not once per node.
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
	if r := Analyse(Experiment{Header: report.Header{Blocks: 2}}, all); !slices.Contains(r.Warnings, want) {
		t.Errorf("warnings %q, want %q among them", r.Warnings, want)
	}
}

func TestTheHeadlineCountsTheNodes(t *testing.T) {
	for nodes, want := range map[string]string{
		"":    "16 jobs on a node of 2 CPUs, 1 run a cell.",
		"a":   "16 jobs on a node of 2 CPUs of a cluster (a), 1 run a cell.",
		"a b": "16 jobs on 2 nodes of a cluster (a, b), each of 2 CPUs, 1 run a cell.",
	} {
		r := Result{Jobs: 16, Experiment: Experiment{Node: Node{CPUs: 2}, Nodes: strings.Fields(nodes)}}
		if got := headline(r); got != want {
			t.Errorf("on the nodes %q: %q, want %q", nodes, got, want)
		}
	}
}

// TestTwoRunsThatDifferGiveNoInterval uses two nodes with one job each. The
// times of 60 s and 90 s show almost nothing about the mean time.
func TestTwoRunsThatDifferGiveNoInterval(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	var all []jobs.Job
	for host, s := range map[string]time.Duration{"a": 60 * time.Second, "b": 90 * time.Second} {
		all = append(all, jobs.Job{Host: host, Type: "quota", Concurrency: 1, CPU: 1000, In: at, Out: at.Add(s)})
	}
	a, err := Analyse(Experiment{Header: report.Header{Blocks: 1}}, all).Advise(jobs.Goal{}, 0)
	if err != nil || strings.Contains(a.Text(), "(-") || strings.Count(a.Text(), "(2 runs differ too much for an interval)") != 2 {
		t.Errorf("%s, %v", a.Text(), err)
	}
}
