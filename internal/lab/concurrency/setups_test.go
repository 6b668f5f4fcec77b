package concurrency

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/report"
)

// TestACrossingIsWhereTheOrderOfTwoSetupsChangesForGood checks that a single reversal
// before the last numbers of jobs is no crossing.
func TestACrossingIsWhereTheOrderOfTwoSetupsChangesForGood(t *testing.T) {
	for name, c := range map[string]struct {
		ratios []float64 // of pinned to quota with 1, 2, … jobs
		want   Crossing
	}{
		"crosses":        {[]float64{0.8, 0.9, 1.1, 1.2}, Crossing{Of: "pinned", To: "quota", Limit: 1000, Least: 1, Most: 4, From: 3}},
		"back and forth": {[]float64{0.8, 1.1, 0.9, 1.2}, Crossing{Of: "pinned", To: "quota", Limit: 1000, Least: 1, Most: 4, From: 4}},
		"never":          {[]float64{0.8, 0.9}, Crossing{Of: "pinned", To: "quota", Limit: 1000, Least: 1, Most: 2}},
		"the other way":  {[]float64{1.2, 0.9}, Crossing{Of: "quota", To: "pinned", Limit: 1000, Least: 1, Most: 2, From: 2}},
	} {
		var r Result
		for i, ratio := range c.ratios {
			r.Comparisons = append(r.Comparisons, Comparison{Of: "pinned", To: "quota", Limit: 1000, Jobs: i + 1, Seconds: report.Number(ratio)})
		}
		if diff := cmp.Diff([]Crossing{c.want}, r.crossings()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestBelowOneCPUIsJudgedByTheMeanChange judges made-up penalties. Limits of one CPU and
// more do not count, and a noisy machine cannot tell.
func TestBelowOneCPUIsJudgedByTheMeanChange(t *testing.T) {
	for name, c := range map[string]struct {
		penalties []report.Number
		noise     report.Number
		want      string
	}{
		"small":  {[]report.Number{1.03, 0.97, 1.02}, 0.02, supported},
		"large":  {[]report.Number{1.5, 0.97}, 0.02, ruledOut},
		"noisy":  {[]report.Number{1.01, 1.02}, 0.3, unclear},
		"single": {[]report.Number{1.01}, 0.02, ""},
	} {
		r := Result{Control: &report.Interval{}, ControlHalf: c.noise}
		for i, p := range c.penalties {
			r.Options = append(r.Options, Option{Strategy: quotaStrategy, Limit: 400, Asked: i + 2, Penalty: p})
		}
		r.Options = append(r.Options, Option{Strategy: quotaStrategy, Limit: 1000, Asked: 2, Penalty: 3}, Option{Strategy: quotaStrategy, Limit: 400, Asked: 9, Penalty: report.Number(math.NaN())})
		got := ""
		if b := r.belowOne(); b != nil {
			got = b.Verdict
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
