package colocation

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
)

func htmlOf(t *testing.T, e Experiment, runs []Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := analysis(e, runs).Page().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageNeedsNothingElse(t *testing.T) {
	for name, invent := range goldenCases {
		e, runs := invent()
		page := htmlOf(t, e, runs)
		if found := regexp.MustCompile(`(?i)(src|href|action|data|xlink:href)\s*=|url\(|@import|<(script|link|iframe|object|embed|img)\b|https?://`).FindString(page); found != "" {
			t.Errorf("%s: the page contains %q", name, found)
		}
	}
}

func TestPageShowsEveryMode(t *testing.T) {
	e, runs := goldenCases["quiet"]()
	page := htmlOf(t, e, runs)
	for _, mode := range synthetic.AllModes {
		if !strings.Contains(page, "--c:var(--m-"+string(mode)+",currentColor)") {
			t.Errorf("the page has nothing in the colour of %s", mode)
		}
		if !regexp.MustCompile(`--m-` + string(mode) + `: #`).MatchString(page) {
			t.Errorf("the style sheet has no colour for %s", mode)
		}
		if !strings.Contains(page, `aria-label="CPU over time in mode `+string(mode)+`"`) {
			t.Errorf("no picture of CPU over time for %s", mode)
		}
	}
	for _, want := range []string{"steal 4.2 %", "cpu.max max", "Invented CPU &lt;1 &amp; only&gt;", "These data are synthetic"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
		t.Error("the page shows NaN or Inf")
	}
}

func TestPageOfAnEmptyExperimentIsWhole(t *testing.T) {
	page := htmlOf(t, inventExperiment(0, report.Exclusive, report.Tenon), nil)
	if !strings.HasSuffix(strings.TrimSpace(page), "</html>") || strings.Contains(page, "NaN") {
		t.Error("the page is cut short or shows NaN")
	}
}

func TestPageEscapesWhatItIsGiven(t *testing.T) {
	const evil = `<b onclick="x">`
	e, runs := goldenCases["quick"]()
	e.Input, e.Machine.CPUModel, e.Caveats = evil, evil, []string{evil}
	for i := range runs {
		runs[i].Writes, runs[i].Void, runs[i].Warnings = []string{evil}, nil, []string{evil}
		runs[i].Mode = report.Mode(strings.ReplaceAll(string(runs[i].Mode), "default", evil))
	}
	if strings.Contains(htmlOf(t, e, runs), evil) {
		t.Error("markup in the data is not escaped")
	}
}

// TestPagesToLookAt writes the pages of the golden cases to the directory
// TENON_TEST_PAGES, so that they can be looked at in a browser.
func TestPagesToLookAt(t *testing.T) {
	dir := os.Getenv("TENON_TEST_PAGES")
	if dir == "" {
		t.Skip("TENON_TEST_PAGES is not set")
	}
	for name, invent := range goldenCases {
		e, runs := invent()
		if err := os.WriteFile(filepath.Join(dir, "synthetic-"+name+".html"), []byte(htmlOf(t, e, runs)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
