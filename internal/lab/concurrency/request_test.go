package concurrency

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// importedJobs returns jobs of 15 s that differ only in the CPU of their name: one, two
// and four beside each other, for each amount.
func importedJobs(how, strategy string) []jobs.Job {
	var all []jobs.Job
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, cpu := range []unit.MilliCPU{2000, 4000, 8000, 12000} {
		for _, n := range []int{1, 2, 4} {
			for i := range n {
				all = append(all, jobs.Job{Host: "node00", Type: how, Concurrency: n, CPU: cpu, Memory: 1 << 30, Index: i, In: at, Out: at.Add(time.Duration(14+n) * time.Second), Precision: time.Second, Extra: jobs.Extra{Strategy: strategy}})
			}
			at = at.Add(time.Hour)
		}
	}
	return all
}

// TestARequestIsNoLimit imports jobs that ran without a limit, or with a burst above
// what they requested. The request says nothing about the CPU time that they used, so
// nothing may be made of it: no figure, no cause, no limit.
func TestARequestIsNoLimit(t *testing.T) {
	for name, c := range map[string]struct {
		how, strategy string
		request       bool
	}{
		"unbounded by flag": {"aws", "unbounded", true},
		"unbounded by type": {"unbounded", "", true},
		"burst by flag":     {"aws", "burst", true},
		"burst by type":     {"burst", "", true},
		"the whole node":    {"aws-16cx1", "", true},
		"another node":      {"lxd-8cx2-b", "", true},
		"a quota":           {"aws", "", false},
		"quota by flag":     {"aws-16cx1", "quota", false},
		"no number":         {"aws-cx1", "", false},
	} {
		r := Analyse(Experiment{Node: Node{16, 8}, Imported: []string{"a"}, Header: report.Header{Blocks: 1}}, importedJobs(c.how, c.strategy))
		if known := len(r.Causes) > 0; known == c.request || (r.Named != "") == c.request || c.request && r.Cliff != nil {
			t.Errorf("%s: causes %+v, named %q, cliff %+v", name, r.Causes, r.Named, r.Cliff)
		}
		for _, o := range r.Options {
			if o.CPUSeconds.Known() == c.request || (o.Limit > 0) == c.request || (o.Request > 0) != c.request {
				t.Errorf("%s: %+v", name, o)
			}
		}
		a, err := r.Advise(jobs.Goal{}, 0)
		if err != nil || a.CPUSeconds.Known() == c.request || strings.Contains(a.Text(), "with a limit of") == c.request || strings.Contains(a.Text(), "is not known") != c.request {
			t.Errorf("%s: %q, %v", name, a.Text(), err)
		}
		text := tableOf(t, r)
		if strings.Contains(text, "NaN") || strings.Contains(text, "limit × duration") == c.request || strings.Contains(text, "req 12") != c.request || strings.Contains(text, "The CPU time of the jobs is not known") != c.request {
			t.Errorf("%s:\n%s", name, text)
		}
		var page strings.Builder
		if err := r.Page().WriteHTML(&page); err != nil || strings.Contains(page.String(), "NaN") || strings.Contains(page.String(), "Inf") {
			t.Errorf("%s: the page has NaN or Inf in it, %v", name, err)
		}
	}
	// The CPU time of the lab's own jobs is measured.
	all := importedJobs("burst", "burst")
	for i := range all {
		all[i].Extra.CPUSeconds, all[i].Extra.Block = node.Some(20.0), 1
	}
	if r := Analyse(Experiment{Header: report.Header{Blocks: 1}}, all); len(r.Causes) == 0 || r.Options[0].Limit != 2000 || r.Options[0].CPUSeconds != 20 {
		t.Errorf("measured: %+v, causes %+v", r.Options[0], r.Causes)
	}
}

// TestRequestsAndLimitsAreNotCompared has jobs with a limit and jobs with a request of
// the same CPU.
func TestRequestsAndLimitsAreNotCompared(t *testing.T) {
	later := importedJobs("burst", "burst")
	for i := range later {
		later[i].In, later[i].Out = later[i].In.AddDate(0, 1, 0), later[i].Out.AddDate(0, 1, 0)
	}
	r := Analyse(Experiment{Imported: []string{"a"}}, append(importedJobs("aws", "quota"), later...))
	if len(r.Comparisons) != 0 || len(r.Options) != 24 {
		t.Errorf("%d options, comparisons %+v", len(r.Options), r.Comparisons)
	}
}

// TestTheLegendHoldsForTheRows imports cells that ran several times without blocks: on
// two nodes, late, and each another number of times. The penalty of a row is its
// duration relative to that of the row of a job alone.
func TestTheLegendHoldsForTheRows(t *testing.T) {
	var all []jobs.Job
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for jobsAtOnce, runs := range map[int][]float64{1: {80, 97}, 2: {92}, 3: {90, 104, 96}, 4: {100, 80}} {
		for run, seconds := range runs {
			begin := at.AddDate(0, 0, 10*jobsAtOnce+run)
			for i := range jobsAtOnce {
				all = append(all, jobs.Job{Host: fmt.Sprintf("node%02d", run%2), Type: "aws", Concurrency: jobsAtOnce, CPU: 2000, Index: i, In: begin, Out: begin.Add(time.Duration(seconds * float64(time.Second)))})
			}
		}
	}
	r := Analyse(Experiment{Imported: []string{"a"}, Header: report.Header{Blocks: 1}}, all)
	if len(r.Options) != 4 {
		t.Fatalf("%+v", r.Options)
	}
	for _, o := range r.Options {
		if want := float64(o.Seconds.Value / r.Options[0].Seconds.Value); math.Abs(float64(o.Penalty)-want) > 1e-9 {
			t.Errorf("%d jobs take %v s, one takes %v s: penalty %v, want %v", o.Asked, o.Seconds.Value, r.Options[0].Seconds.Value, o.Penalty, want)
		}
	}
}
