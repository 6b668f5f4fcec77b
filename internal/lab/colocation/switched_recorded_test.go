package colocation

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/lab/load/hlog"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// windowsOf returns the P90 of each second of each run of a mode, from the logs of a
// published experiment.
func windowsOf(t *testing.T, name string, mode report.Mode) (runs [][]float64) {
	t.Helper()
	raw, _, err := archive.OpenExperiment(filepath.Join("../../../docs/experiments", name))
	if err != nil {
		t.Fatal(err)
	}
	logs, err := fs.Glob(raw, "runs/*-"+string(mode)+".hlog")
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range logs {
		f, err := raw.Open(log)
		if err != nil {
			t.Fatal(err)
		}
		_, seconds, err := hlog.Read(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		var p90 []float64
		for _, s := range seconds {
			if s.TotalCount() > 100 {
				p90 = append(p90, float64(s.ValueAtPercentile(90)))
			}
		}
		if len(p90) > 5 { // a start needs several rounds of its own
			runs = append(runs, p90)
		}
	}
	if len(runs) < stat.LeastStarts {
		t.Fatalf("%s has %d runs of %s with a log", name, len(runs), mode)
	}
	return runs
}

// drawWindows makes an experiment of twelve starts with ten rounds from recorded
// seconds. A round is two neighbouring seconds of one run, which stand for two modes
// whose ratio is truth. Their order is random, and each start adds 3 % of its own.
func drawWindows(rng *rand.Rand, runs [][]float64, truth float64) stat.Rounds {
	r := stat.Rounds{}
	for start := range stat.Starts {
		run, own := runs[rng.IntN(len(runs))], math.Log(truth)+0.03*rng.NormFloat64()
		for range 10 {
			i := rng.IntN(len(run) - 1)
			log := math.Log(run[i+1] / run[i])
			if rng.IntN(2) == 0 {
				log = -log
			}
			r[start+1] = append(r[start+1], own+log)
		}
	}
	return r
}

// turnsDir is the folder of the first quiet experiment in turns.
const turnsDir = "../../../docs/experiments/2026-11-30-modes-take-turns"

// recordedTurns returns the analysis of that experiment.
func recordedTurns(t *testing.T) *Switched {
	t.Helper()
	f, err := Open(turnsDir)
	if err != nil {
		t.Fatal(err)
	}
	return f.(*Switched)
}

// TestRecordedTurnsGiveTheirResult analyses the first quiet experiment in turns again.
// Its figures, verdicts and words must be those beside its raw data: tenon lab report
// prints table.txt, and with -o json result.json.
func TestRecordedTurnsGiveTheirResult(t *testing.T) {
	f, dir := recordedTurns(t), turnsDir
	parse := func(data []byte, err error) (result map[string]any) {
		t.Helper()
		if err == nil {
			err = json.Unmarshal(data, &result)
		}
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	want, got := parse(os.ReadFile(filepath.Join(dir, report.ResultFile))), parse(json.Marshal(f.Result()))
	for _, key := range []string{"starts", "rounds", "dropped_rounds", "modes", "claims", "conclusions"} {
		if diff := cmp.Diff(want[key], got[key], cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("%s (-recorded +today):\n%s", key, diff)
		}
	}
	printed, err := os.ReadFile(filepath.Join(dir, "table.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := f.Page().WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(printed), text.String()); diff != "" {
		t.Errorf("table.txt (-recorded +today):\n%s", diff)
	}
}

// TestRecordedSecondsDecideWhatTheStudyFound judges experiments of recorded seconds by
// the code of the lab. Two modes that are equal must be found equal within 5 % as
// often as in the study of these data, and no answer may be false too often.
func TestRecordedSecondsDecideWhatTheStudyFound(t *testing.T) {
	const experiments = 1000
	for _, c := range []struct {
		experiment string
		mode       report.Mode
		least      float64 // share of experiments that find two equal modes equal within 5 %
	}{
		{"2026-11-22-colocation-ninety-minutes", report.Tenon, 0.85},
		{"2026-11-22-colocation-ninety-minutes", report.Default, 0.95},
		{"2026-11-22-colocation-ninety-minutes", report.Burstable, 0.85},
		{"2026-11-22-colocation-on-kubernetes", report.Tenon, 0.95},
		{"2026-11-22-colocation-on-kubernetes", report.Default, 0.95},
	} {
		runs := windowsOf(t, c.experiment, c.mode)
		share := func(truth float64, q stat.Question, verdict stat.Verdict) float64 {
			rng, n := rand.New(rand.NewPCG(45, 1)), 0
			for range experiments {
				if q.Answer(drawWindows(rng, runs, truth), 1).Verdict == verdict {
					n++
				}
			}
			return float64(n) / experiments
		}
		tie, differs := share(1, stat.Question{Asks: stat.AsksWhich, Limit: 1.05}, stat.Tie), share(0.8, stat.Question{Asks: stat.AsksWhich, Limit: equalLimit}, stat.Differs)
		below, above := share(aloneLimit, stat.Question{Asks: stat.AsksAtMost, Limit: aloneLimit}, stat.Met), share(aloneLimit, stat.Question{Asks: stat.AsksAtMost, Limit: aloneLimit}, stat.NotMet)
		wrong := share(1, stat.Question{Asks: stat.AsksWhich, Limit: 1.0001}, stat.Differs)
		t.Logf("%s, %s: equal within 5 %% %.1f, 20 %% lower %.1f; false below %.1f, above %.1f, differs %.1f (%%)", c.experiment, c.mode, 100*tie, 100*differs, 100*below, 100*above, 100*wrong)
		if tie < c.least || differs < 0.99 {
			t.Errorf("%s, %s: equal modes are found equal in %.1f %%, and 20 %% in %.1f %%", c.experiment, c.mode, 100*tie, 100*differs)
		}
		const most = stat.RatioError + 3*0.0069 // three standard errors
		if max(below, above, wrong) > most {
			t.Errorf("%s, %s: false answers in %.1f, %.1f and %.1f %%", c.experiment, c.mode, 100*below, 100*above, 100*wrong)
		}
	}
}

// TestRecordedRoundsAreRarelyFalse draws experiments from the rounds of the first quiet
// run, whose law no simulated one has: its log ratios of P90 have a standard deviation of
// 0.2 and a skewness of 3 to 5, because P90 was three times as high in two of 120 rounds.
// A bound must hold for the typical round, of which it says what it says. For the mean of
// the log ratios it need not hold, and the page of the statistics has how often it does not.
func TestRecordedRoundsAreRarelyFalse(t *testing.T) {
	const experiments = 1000
	s := recordedTurns(t)
	for _, c := range []struct {
		of, to  report.Mode
		measure string
		metric  report.Metric
	}{
		{report.Tenon, report.Frozen, "P90", allP90}, {report.Tenon, report.Default, "P90", allP90},
		{report.Burstable, report.Tenon, "waiting", report.Waiting}, {report.Tenon, report.Default, "waiting", report.Waiting},
	} {
		var all []float64
		for _, r := range s.rounds {
			all = append(all, math.Log(c.metric(r.windows[c.of].Run)/c.metric(r.windows[c.to].Run)))
		}
		for _, own := range []float64{0, 0.03} { // what each start adds
			rng := rand.New(rand.NewPCG(12, 127))
			draw := func(starts, rounds int) stat.Rounds {
				drawn := stat.Rounds{}
				for start := range starts {
					add := own * rng.NormFloat64()
					for range rounds {
						drawn[start] = append(drawn[start], add+all[rng.IntN(len(all))])
					}
				}
				return drawn
			}
			typical, sum, n := math.Log(float64(stat.EffectOf(draw(2000, 10), stat.RatioError).Ratio)), 0.0, float64(len(all))
			for _, v := range all {
				sum += v
			}
			var above, below, mean int
			for range experiments {
				e := stat.EffectOf(draw(stat.Starts, 10), stat.RatioError)
				lower, upper := math.Log(float64(e.Lower)), math.Log(float64(e.Upper))
				if typical < lower {
					above++
				}
				if typical > upper {
					below++
				}
				if sum/n > upper {
					mean++
				}
			}
			t.Logf("%s, %s to %s, starts add %.0f %%: of %d lower bounds %d are false, of the upper ones %d; for the mean %d", c.measure, c.of, c.to, 100*own, experiments, above, below, mean)
			if most := (stat.RatioError + 3*0.0069) * experiments; float64(max(above, below)) > most {
				t.Errorf("%s, %s to %s, starts add %.0f %%: of %d lower bounds %d are false, of the upper ones %d", c.measure, c.of, c.to, 100*own, experiments, above, below)
			}
		}
	}
}
