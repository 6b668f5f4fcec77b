package report

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// logOf writes a histogram as an .hlog of one line.
func logOf(h *hdrhistogram.Histogram) func(io.Writer) error {
	return func(w io.Writer) error { return hdrhistogram.NewHistogramLogWriter(w).OutputIntervalHistogram(h) }
}

func save(t *testing.T, e Experiment, runs []Run) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "experiment")
	if err := Create(dir, e); err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if r.Histogram != nil {
			r.Log = logOf(r.Histogram)
		}
		if err := SaveRun(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadGivesBackWhatWasSaved(t *testing.T) {
	e := syntheticExperiment(2, allModes...)
	runs := syntheticRuns(e, 0.05)
	gotExperiment, gotRuns, err := Load(save(t, e, runs))
	if err != nil {
		t.Fatal(err)
	}
	same := cmp.Options{nanEqual, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Run{}, "Log"),
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

func TestReportIsRebuiltFromRawData(t *testing.T) {
	e := syntheticExperiment(2, Exclusive, Default, Tenon)
	runs := syntheticRuns(e, 0.05)
	dir := save(t, e, runs)
	got, err := Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Analyse(e, runs), got, nanEqual, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("result (-from memory +from files):\n%s", diff)
	}
	var result Result
	data, err := os.ReadFile(filepath.Join(dir, resultFile))
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	if err != nil || len(result.Claims) != len(got.Claims) {
		t.Errorf("result.json: %v, %d claims; want %d", err, len(result.Claims), len(got.Claims))
	}
	page, err := os.ReadFile(filepath.Join(dir, pageFile))
	if err != nil || !strings.Contains(string(page), "</html>") {
		t.Errorf("report.html: %v, %d bytes", err, len(page))
	}
}

func TestInterruptedExperimentKeepsItsFinishedRuns(t *testing.T) {
	e := syntheticExperiment(2, Exclusive, Tenon)
	runs := syntheticRuns(e, 0.05)
	dir := save(t, e, runs)
	// Killed between the log and the JSON of the last run, and in the middle of another file.
	last := filepath.Join(dir, runsDir, "003-"+string(runs[3].Mode)+".json")
	if err := os.Remove(last); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, runsDir, ".004-tenon.json.tmp-1"), []byte(`{"ind`), 0o644); err != nil {
		t.Fatal(err)
	}
	_, got, err := Load(dir)
	if err != nil || len(got) != 3 {
		t.Errorf("Load: %d runs, %v; want 3", len(got), err)
	}
}

func TestRunWithoutAHistogramLoads(t *testing.T) {
	e := syntheticExperiment(1, Exclusive)
	runs := syntheticRuns(e, 0.05)
	runs[0].Histogram = nil
	_, got, err := Load(save(t, e, runs))
	if err != nil || len(got) != 1 || got[0].Histogram != nil {
		t.Errorf("Load: %+v, %v", got, err)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	e := syntheticExperiment(1, Exclusive)
	write := func(name, text string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) }
	}
	for name, c := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"no experiment":      {func(dir string) error { return os.Remove(filepath.Join(dir, experimentFile)) }, "is it the directory of an experiment?"},
		"other schema":       {write(experimentFile, `{"schema": 99}`), "schema 99"},
		"torn run":           {write("runs/000-exclusive.json", `{"mode":`), "000-exclusive.json"},
		"run without a mode": {write("runs/000-exclusive.json", `{"length_ns": 1}`), `mode ""`},
		"no log in the log":  {write("runs/000-exclusive.hlog", "nonsense\n"), "000-exclusive"},
	} {
		dir := save(t, e, syntheticRuns(e, 0.05))
		if err := c.spoil(dir); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

func TestFailedWriteLeavesNothingBehind(t *testing.T) {
	e := syntheticExperiment(1, Exclusive)
	dir := save(t, e, nil)
	full := errors.New("no space left on device")
	r := Run{Mode: Exclusive, Length: time.Second, Log: func(w io.Writer) error {
		_, _ = io.WriteString(w, "half a")
		return full
	}}
	if err := SaveRun(dir, r); !errors.Is(err, full) {
		t.Errorf("SaveRun: %v, want the error of the writer", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, runsDir))
	if err != nil || len(left) != 0 {
		t.Errorf("%d files left behind, %v", len(left), err)
	}
}

func TestStrangeRunsAreNotSaved(t *testing.T) {
	dir := save(t, syntheticExperiment(1, Exclusive), nil)
	for name, r := range map[string]Run{
		"path in the mode": {Mode: "../../etc/x", Length: 1},
		"no mode":          {Length: 1},
		"no length":        {Mode: Exclusive},
		"negative index":   {Mode: Exclusive, Length: 1, Index: -1},
	} {
		if err := SaveRun(dir, r); err == nil {
			t.Errorf("%s: saved", name)
		}
	}
}

// Whatever a run's JSON holds, it is refused, or analysed and shown.
func FuzzRun(f *testing.F) {
	e := syntheticExperiment(1, Exclusive, Tenon)
	for _, r := range syntheticRuns(e, 0.05) {
		r.Series = r.Series[:3]
		data, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, data)
	}
	f.Add([]byte(`{"mode":"tenon","length_ns":1,"latency":{"p99_us":1e308},"ls_cpus_used":-1e308}`), []byte(`{"mode":"exclusive","length_ns":1,"latency":{"p99_us":5e-324}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var runs []Run
		for _, data := range [][]byte{a, b} {
			if r, err := parseRun(data); err == nil {
				runs = append(runs, r)
			}
		}
		if len(runs) == 0 {
			return
		}
		r := Analyse(e, runs)
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(WriteTable(io.Discard, r), WriteHTML(io.Discard, r, runs)); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzExperiment(f *testing.F) {
	data, err := json.Marshal(syntheticExperiment(2, allModes...))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parseExperiment(data)
		if err != nil {
			return
		}
		r := Analyse(e, nil)
		if err := errors.Join(WriteTable(io.Discard, r), WriteHTML(io.Discard, r, nil)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPicturesOfExtremeValuesAreDrawnOrLeftOut(t *testing.T) {
	for _, v := range []float64{0, 5e-324, 1e-300, 1, 1e300, 8e307} {
		e := syntheticExperiment(2, Exclusive, Tenon)
		runs := plain(e, func(r *Run) {
			r.Latency.P99, r.DelayPerRun = v*(1+float64(r.Block)), v
			r.Series = []Sample{{At: -5, LS: -v, BE: v, Limit: v}, {At: 0}, {At: math.MaxInt64, Other: v}}
		})
		if page := htmlOf(t, e, runs); strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
			t.Errorf("value %g: the page shows NaN or Inf", v)
		}
	}
}
