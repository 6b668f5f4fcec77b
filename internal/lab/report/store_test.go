package report_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
	"tenon.sh/tenon/internal/model/unit"
)

// logOf writes a histogram as an .hlog of one line.
func logOf(h *hdrhistogram.Histogram) func(io.Writer) error {
	return func(w io.Writer) error { return hdrhistogram.NewHistogramLogWriter(w).OutputIntervalHistogram(h) }
}

func save(t *testing.T, e report.Experiment, runs []report.Run) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "experiment")
	if err := report.Create(dir, &e); err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if r.Histogram != nil {
			r.Log = logOf(r.Histogram)
		}
		if err := report.SaveRun(dir, &r); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadGivesBackWhatWasSaved(t *testing.T) {
	e := synthetic.Experiment(2, synthetic.AllModes...)
	runs := synthetic.Runs(e, 0.05)
	gotExperiment, gotRuns, err := report.Load[report.Experiment, report.Run](save(t, e, runs))
	if err != nil {
		t.Fatal(err)
	}
	same := cmp.Options{cmp.Comparer(func(a, b unit.CPUSet) bool { return a == b }), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(report.Run{}, "Log"),
		cmp.Comparer(func(a, b *hdrhistogram.Histogram) bool {
			if a == nil || b == nil {
				return a == b
			}
			return cmp.Equal(a.Distribution(), b.Distribution())
		})}
	if diff := cmp.Diff(e, gotExperiment, same); diff != "" {
		t.Errorf("experiment (-saved +loaded):\n%s", diff)
	}
	if diff := cmp.Diff(runs, gotRuns, same); diff != "" {
		t.Errorf("runs (-saved +loaded):\n%s", diff)
	}
}

func TestInterruptedExperimentKeepsItsFinishedRuns(t *testing.T) {
	e := synthetic.Experiment(2, report.Exclusive, report.Tenon)
	runs := synthetic.Runs(e, 0.05)
	dir := save(t, e, runs)
	// The lab was killed twice: once between writing the log and the JSON of
	// the last run, and once while it wrote another file.
	last := filepath.Join(dir, "runs", "003-"+string(runs[3].Mode)+".json")
	if err := os.Remove(last); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "runs", ".004-tenon.json.tmp-1"), []byte(`{"ind`), 0o644); err != nil {
		t.Fatal(err)
	}
	_, got, err := report.Load[report.Experiment, report.Run](dir)
	if err != nil || len(got) != 3 {
		t.Errorf("Load: %d runs, %v; want 3", len(got), err)
	}
}

func TestRunWithoutAHistogramLoads(t *testing.T) {
	e := synthetic.Experiment(1, report.Exclusive)
	runs := synthetic.Runs(e, 0.05)
	runs[0].Histogram = nil
	_, got, err := report.Load[report.Experiment, report.Run](save(t, e, runs))
	if err != nil || len(got) != 1 || got[0].Histogram != nil {
		t.Errorf("Load: %+v, %v", got, err)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	e := synthetic.Experiment(1, report.Exclusive)
	write := func(name, text string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) }
	}
	for name, c := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"no experiment":      {func(dir string) error { return os.Remove(filepath.Join(dir, "experiment.json")) }, "is it the directory of an experiment?"},
		"other schema":       {write("experiment.json", `{"schema": 99}`), "schema 99"},
		"torn run":           {write("runs/000-exclusive.json", `{"mode":`), "000-exclusive.json"},
		"run without a mode": {write("runs/000-exclusive.json", `{"length_ns": 1}`), `mode ""`},
		"no log in the log":  {write("runs/000-exclusive.hlog", "nonsense\n"), "000-exclusive"},
	} {
		dir := save(t, e, synthetic.Runs(e, 0.05))
		if err := c.spoil(dir); err != nil {
			t.Fatal(err)
		}
		if _, _, err := report.Load[report.Experiment, report.Run](dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

func TestFailedWriteLeavesNothingBehind(t *testing.T) {
	e := synthetic.Experiment(1, report.Exclusive)
	dir := save(t, e, nil)
	full := errors.New("no space left on device")
	r := report.Run{Mode: report.Exclusive, Length: time.Second, Log: func(w io.Writer) error {
		_, _ = io.WriteString(w, "half a")
		return full
	}}
	if err := report.SaveRun(dir, &r); !errors.Is(err, full) {
		t.Errorf("SaveRun: %v, want the error of the writer", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "runs"))
	if err != nil || len(left) != 0 {
		t.Errorf("%d files are left, error %v", len(left), err)
	}
}

func TestStrangeRunsAreNotSaved(t *testing.T) {
	dir := save(t, synthetic.Experiment(1, report.Exclusive), nil)
	for name, r := range map[string]report.Run{
		"path in the mode": {Mode: "../../etc/x", Length: 1},
		"no mode":          {Length: 1},
		"no length":        {Mode: report.Exclusive},
		"negative index":   {Mode: report.Exclusive, Length: 1, Index: -1},
	} {
		if err := report.SaveRun(dir, &r); err == nil {
			t.Errorf("%s: saved", name)
		}
	}
}
