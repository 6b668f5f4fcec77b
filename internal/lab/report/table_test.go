package report_test

import (
	"bytes"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
)

// TestRequestsLeftOutAreShown uses one mode in which stalls spoiled twice as
// many requests as in the others.
func TestRequestsLeftOutAreShown(t *testing.T) {
	e := synthetic.Experiment(12, report.Exclusive, report.Default)
	runs := synthetic.Runs(e, 0.05)
	study := report.Study{
		Headline: func(report.Result) string { return "" }, Legend: func(report.Result) string { return "" },
		Tables: []report.Section{{Title: "both", Modes: e.Modes}}, Rows: report.LatencyRows,
	}
	text := func() string {
		var b bytes.Buffer
		if err := report.Analyse(e, runs, study).Page().WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if before := text(); strings.Contains(before, "with stalls") {
		t.Errorf("rows for requests that no run kept:\n%s", before)
	}
	for i := range runs {
		all := runs[i].Latency
		all.P99 = 4321
		runs[i].WithStalls, runs[i].Spoiled = &all, 0.02
		if runs[i].Mode == report.Default {
			runs[i].Spoiled = 0.04
		}
	}
	after := text()
	for _, want := range []string{"P99 with stalls", "4.321", "left out", "left out 4.0 % of the requests, in exclusive 2.0 %"} {
		if !strings.Contains(after, want) {
			t.Errorf("no %q in\n%s", want, after)
		}
	}
}
