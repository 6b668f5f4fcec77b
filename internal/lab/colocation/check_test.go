package colocation

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// trial returns the windows of a short start of five rounds, in which P90 under Tenon jumps
// by a ratio from one round to the next, and the waiting beside requests by another one.
func trial(t *testing.T, ratio float64, void ...int) []Window {
	t.Helper()
	var windows []Window
	for round := range 5 {
		for _, mode := range TrialModes(switchedModes) {
			w := Window{Round: round + 1, Run: report.Run{Mode: mode, Length: 800 * time.Millisecond, RunDelay: time.Millisecond, Timeslices: 100, PSICPU: -1}}
			w.setP90(t, 1000)
			switch mode {
			case report.Tenon:
				w.setP90(t, 1000*math.Pow(ratio, float64(round%2)))
			case report.Burstable:
				w.RunDelay *= time.Duration(10 + 10*(round%2))
			}
			windows = append(windows, w)
		}
	}
	for _, i := range void {
		windows[i].Discard(report.Disturbed, "other work used 60 % of the tested CPUs")
	}
	return windows
}

func TestACheckSaysWhatCanBeDecided(t *testing.T) {
	quiet := Check{Others: report.Others{CPUs: 2, Used: 0.04, Tested: 0.01, Steal: 0, Waited: 0.02, Programs: []report.Program{{Name: "sshd", CPUs: 0.03}}}}
	busy := Check{Others: report.Others{CPUs: 2, Used: 1.44, Tested: 0.74, Steal: 0.002, Waited: 0.6, Programs: []report.Program{
		{Name: "compile", CPUs: 0.92}, {Name: "make", CPUs: 0.41}, {Name: "ld", CPUs: 0.06}, {Name: "sh", CPUs: 0.055},
	}}}
	for name, c := range map[string]struct {
		check   Check
		windows []Window
		quiet   bool
		decides bool
		want    []string
	}{
		"a quiet machine": {quiet, trial(t, 1.1), true, true, []string{
			"before the run: other work uses 0.0 of 2 CPUs, 0.0 of the tested ones; the hypervisor keeps 0.0 % of these; a task waits for a CPU in 2 % of the time",
			"before the run: if its starts are alike, 80 of 100 such runs show a difference of ",
		}},
		"beside a compiler": {busy, trial(t, 1.5, 1), false, true, []string{
			"other work uses 1.4 of 2 CPUs (compile 0.9, make 0.4, ld 0.1), 0.7 of the tested ones",
			"1 of 15 windows of a trial were void. As the machine is now, most runs will show no difference below ",
		}},
		"all windows are void": {busy, trial(t, 1.5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14), false, false, []string{
			"other work uses 1.4 of 2 CPUs", "15 of 15 windows of a trial were void. As the machine is now, the run will decide nothing",
		}},
		"most windows are void": {quiet, trial(t, 1.1, 0, 1, 2, 3, 4, 5, 6, 7), false, false, []string{
			"other work uses 0.0 of 2 CPUs, 0.0 of", "8 of 15 windows of a trial were void. As the machine is now, the run will decide nothing",
		}},
	} {
		check := c.check
		check.Expect(c.windows, switchedModes, stat.Starts, 10, 1)
		if got := check.IsQuiet(); got != c.quiet {
			t.Errorf("%s: quiet %v", name, got)
		}
		if got := check.Expected[0].Size.Ratio.Known(); got != c.decides {
			t.Errorf("%s: %+v", name, check.Expected)
		}
		for i, want := range c.want {
			if got := check.Lines()[i]; !strings.Contains(got, want) || strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if _, err := json.Marshal(check); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestACheckKnowsTheNoise checks that a window that is void has no part in the noise,
// that more noise lets expect less, and that each ratio has its own noise.
func TestACheckKnowsTheNoise(t *testing.T) {
	var calm, noisy Check
	calm.Expect(trial(t, 1.05), switchedModes, stat.Starts, 10, 1)
	noisy.Expect(trial(t, 2), switchedModes, stat.Starts, 10, 1)
	// The ratio is the same in three of five rounds, and 1.05 times that in two.
	want := math.Exp(math.Log(1.05) * math.Sqrt(0.3))
	if got := float64(calm.Expected[0].Scatter); math.Abs(got-want) > 0.002 {
		t.Errorf("P90 scatters by %v, want %v", got, want)
	}
	if a, b := calm.Expected[0].Size, noisy.Expected[0].Size; !(a.Ratio > 1.05 && a.Ratio < 1.06 && b.Ratio > 1.1) {
		t.Errorf("the sizes are %v and %v", a, b)
	}
	if w := calm.Expected[1]; w.Of != report.Burstable || w.To != report.Tenon || w.Measure != report.WaitingTime.Key || w.Size != noisy.Expected[1].Size || w.Size.Ratio < 1.1 {
		t.Errorf("%+v, and %+v", w, noisy.Expected[1])
	}
	windows := trial(t, 1.05, 2) // a window of Tenon
	if windows[2].Mode != report.Tenon {
		t.Fatalf("the third window is of %s", windows[2].Mode)
	}
	windows[2].setP90(t, 1e6)
	if calm.Expect(windows, switchedModes, stat.Starts, 10, 1); calm.Expected[0].Scatter > 1.05 || calm.Void != 1 {
		t.Errorf("%+v", calm)
	}
}

// TestACheckTriesTheModesOfTheSentences names the modes that a trial needs.
func TestACheckTriesTheModesOfTheSentences(t *testing.T) {
	for _, c := range []struct{ modes, want []report.Mode }{
		{switchedModes, []report.Mode{report.Frozen, report.Burstable, report.Tenon}},
		{[]report.Mode{report.Tenon, report.Default}, []report.Mode{report.Tenon, report.Default}},
		{[]report.Mode{report.Frozen, report.Default}, nil},
	} {
		if got := TrialModes(c.modes); len(got) != len(c.want) || len(got) > 0 && !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.modes, got, c.want)
		}
	}
	var none Check
	if none.Expect(nil, []report.Mode{report.Frozen, report.Default}, stat.Starts, 10, 1); len(none.Expected) != 0 || none.outlook() != "the modes allow no question, so nothing was tried" {
		t.Errorf("%+v: %q", none, none.outlook())
	}
}

// TestRecordedTrialsContainTheSizeOfTheirExperiment takes each five rounds that follow each
// other in the first quiet experiment for a trial before it.
func TestRecordedTrialsContainTheSizeOfTheirExperiment(t *testing.T) {
	s := recordedTurns(t)
	for _, claim := range expectedOf(s.Experiment.Modes) {
		rounds, alpha := ratios(claim.Of, claim.To, claim.metric, s.rounds), SentenceError(s.Experiment.Modes, 1)
		var all []float64
		for start := range rounds {
			all = append(all, rounds[start]...)
		}
		slices.Sort(all)
		size, trials, within := stat.SizeOf(all, stat.Starts, 10, alpha), 0, 0
		for _, logs := range rounds {
			for from := 0; from+5 <= len(logs); from += 2 {
				trials++
				if got := stat.SizeOf(logs[from:from+5], stat.Starts, 10, alpha); got.Least <= size.Ratio && size.Ratio <= got.Most {
					within++
				}
			}
		}
		t.Logf("%s: %+v in the experiment, between the bounds of %d of %d trials", claim.Name, size, within, trials)
		if 10*within < 8*trials {
			t.Errorf("%s: %+v in the experiment, between the bounds of %d of %d trials only", claim.Name, size, within, trials)
		}
	}
}

// TestAMachineThatWasNotQuietIsAWarning shows the check on the page.
func TestAMachineThatWasNotQuietIsAWarning(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	e.Check = &Check{Others: report.Others{CPUs: 2, Used: 1.4, Tested: 0.7, Steal: report.Number(math.NaN()), Waited: report.Number(math.NaN()), Programs: []report.Program{{Name: "make", CPUs: 1.3}}}}
	e.Check.Expect(trial(t, 1.1), switchedModes, stat.Starts, 10, 1)
	s := AnalyseSwitched(e, switchedRuns(t, e, func(*Window) {}))
	if text := strings.Join(s.Warnings, "\n"); !strings.Contains(text, "the machine was not quiet: other work uses 1.4 of 2 CPUs (make 1.3), 0.7 of the tested ones") {
		t.Errorf("warnings %q", text)
	}
	var html strings.Builder
	if err := s.Page().WriteHTML(&html); err != nil || !strings.Contains(html.String(), "before the run: other work uses 1.4 of 2 CPUs") {
		t.Errorf("error %v; the page does not show the check", err)
	}
}
