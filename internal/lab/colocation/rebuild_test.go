package colocation

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
)

// logOf writes a histogram as an .hlog of one line.
func logOf(h *hdrhistogram.Histogram) func(io.Writer) error {
	return func(w io.Writer) error { return hdrhistogram.NewHistogramLogWriter(w).OutputIntervalHistogram(h) }
}

func save(t *testing.T, e Experiment, runs []Run) (dir string) {
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

func TestReportIsRebuiltFromRawData(t *testing.T) {
	e := inventExperiment(2, report.Exclusive, report.Default, report.Tenon)
	runs := inventedRuns(e, 0.05)
	dir := save(t, e, runs)
	f, err := report.Build(dir, Open)
	if err != nil {
		t.Fatal(err)
	}
	got := f.Result().(Result)
	if diff := cmp.Diff(analyse(e, runs), got, nanEqual, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("result (-from memory +from files):\n%s", diff)
	}
	var result Result
	data, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	if err != nil || len(result.Claims) != len(got.Claims) {
		t.Errorf("result.json: %v, %d claims; want %d", err, len(result.Claims), len(got.Claims))
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || !strings.Contains(string(page), "</html>") {
		t.Errorf("report.html: %v, %d bytes", err, len(page))
	}
}

// FuzzRun checks that any JSON of a run is either refused, or analysed and
// shown without a panic.
func FuzzRun(f *testing.F) {
	e := inventExperiment(1, report.Exclusive, report.Tenon)
	for _, r := range inventedRuns(e, 0.05) {
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
			var r Run
			if err := report.ParseRun(data, &r); err == nil {
				runs = append(runs, r)
			}
		}
		if len(runs) == 0 {
			return
		}
		all := analysis(e, runs)
		if _, err := json.Marshal(all.Result()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(all.Page().WriteText(io.Discard), all.Page().WriteHTML(io.Discard)); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzExperiment(f *testing.F) {
	data, err := json.Marshal(inventExperiment(2, synthetic.AllModes...))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := report.ParseExperiment[Experiment](data)
		if err != nil {
			return
		}
		a := Analyse(e, nil)
		if err := errors.Join(a.Page().WriteText(io.Discard), a.Page().WriteHTML(io.Discard)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPicturesOfExtremeValuesAreDrawnOrLeftOut(t *testing.T) {
	for _, v := range []float64{0, 5e-324, 1e-300, 1, 1e300, 8e307} {
		e := inventExperiment(2, report.Exclusive, report.Tenon)
		runs := plainRuns(e, func(r *Run) {
			r.Latency.P99, r.DelayPerRun = v*(1+float64(r.Block)), v
			r.Series = []report.Sample{{At: -5, LS: -v, BE: v, Limit: v}, {At: 0}, {At: math.MaxInt64, Other: v}}
		})
		if page := htmlOf(t, e, runs); strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
			t.Errorf("value %g: the page shows NaN or Inf", v)
		}
	}
}
