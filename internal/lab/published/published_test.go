package published

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/textlayout"
)

const measured = `{"experiment": {"client": "tenon", "machine": {"cpus": 2}}, "modes": {
	"exclusive": {"p90_us": 100, "p99_us": 200, "cpu_percent": 30},
	"default-65": {"p90_us": 120.5, "p99_us": null, "cpu_percent": 65},
	"slo-aware": {"p90_us": 50, "p99_us": 500, "cpu_percent": 64}},
	"ratios": {
	"default-65": {"p90": {"estimate": 1.2, "low": 1.1, "high": 1.3}},
	"slo-aware": {"p90": {"estimate": 0.5, "low": null, "high": null}, "p99": {"estimate": 2.5, "low": 2, "high": 3}}}}`

// TestARunStandsBesideTheDocument puts a made-up result beside the first document. A
// figure that the run has not is no number.
func TestARunStandsBesideTheDocument(t *testing.T) {
	d := Read()
	doc, is := d.Document("colocation")
	result, err := Decode([]byte(measured))
	if !is || err != nil {
		t.Fatal(is, err)
	}
	grids := d.Beside(doc, result)
	want := []Line{
		{Fact: "RT-P90 (ms)", From: "document", Cells: []string{"0.533", "0.574 (+7.7 %)", "0.548 (+2.8 %)"}},
		{Fact: "RT-P90 (ms)", From: "this run, CPU sets", Cells: []string{"0.100", "0.120 (+20.0 %; +10.0 to +30.0)", "0.050 (−50.0 %; one block)"}},
		{Fact: "RT-P99 (ms)", From: "document", Cells: []string{"0.93", "1.07 (+15.1 %)", "0.96 (+3.2 %)"}},
		{Fact: "RT-P99 (ms)", From: "this run, CPU sets", Cells: []string{"0.200", noRun, "0.500 (×2.5; 2.0 to 3.0)"}},
		{Fact: "RT-P99, all requests (ms)", From: "this run, CPU sets", Cells: []string{"not recorded", "not recorded", "not recorded"}},
		{Fact: "CPU use (%)", From: "document", Cells: []string{"29.6", "65.1", "64.8"}},
		{Fact: "CPU use (%)", From: "this run, CPU sets", Cells: []string{"30.0", "65.0", "64.0"}},
	}
	if diff := cmp.Diff(want, grids[0].Lines); diff != "" {
		t.Error(diff)
	}
	for _, g := range grids {
		for line := range strings.Lines(g.Text()) {
			if n := textlayout.Columns(strings.TrimSuffix(line, "\n")); n > 100 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	if last := grids[len(grids)-1]; last.Name != "colocation-wrk" || last.Lines[1].Cells[0] != notMeasured {
		t.Errorf("an open loop fills the table of wrk: %+v", last)
	}
}

// TestEditionsShareTheirTables checks that both editions of the first document have the
// same tables, and that each table belongs to a document.
func TestEditionsShareTheirTables(t *testing.T) {
	d, all := Read(), 0
	for _, doc := range d.Documents {
		if n := len(d.Of(doc)); n == 0 {
			t.Errorf("%s has no table", doc.Name)
		} else if doc.Same == "" {
			all += n
		}
	}
	if all != len(d.Tables) {
		t.Errorf("the documents have %d tables, of %d", all, len(d.Tables))
	}
	for _, tab := range d.Tables {
		for _, way := range append(tab.Here, tab.Runs...) {
			if len(way.Columns) != len(tab.Columns) {
				t.Errorf("%s, %s: %d columns, want %d", tab.Name, way.Label, len(way.Columns), len(tab.Columns))
			}
		}
	}
}
