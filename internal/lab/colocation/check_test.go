package colocation

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// trial returns windows of one mode whose P90 jumps by a ratio from each to the next.
func trial(t *testing.T, ratio float64, void ...int) []Window {
	t.Helper()
	var windows []Window
	for i := range 7 {
		w := Window{Run: report.Run{Mode: report.Default, Length: 800 * time.Millisecond, RunDelay: time.Duration(1+i%2) * time.Millisecond, PSICPU: -1}}
		w.setP90(t, 1000*math.Pow(ratio, float64(i%2)))
		windows = append(windows, w)
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
			"before the run: if its starts are alike, the run can decide differences of about ",
		}},
		"beside a compiler": {busy, trial(t, 1.5, 1), false, true, []string{
			"other work uses 1.4 of 2 CPUs (compile 0.9, make 0.4, ld 0.1), 0.7 of the tested ones",
			"1 of 7 windows of a trial were void. As the machine is now, the run will decide nothing smaller than about ",
		}},
		"all windows are void": {busy, trial(t, 1.5, 0, 1, 2, 3, 4, 5, 6), false, false, []string{
			"other work uses 1.4 of 2 CPUs", "7 of 7 windows of a trial were void. As the machine is now, the run will decide nothing",
		}},
		"most windows are void": {quiet, trial(t, 1.1, 0, 1, 2, 3), false, false, []string{
			"other work uses 0.0 of 2 CPUs, 0.0 of", "4 of 7 windows of a trial were void. As the machine is now, the run will decide nothing",
		}},
	} {
		check := c.check
		check.Expect(c.windows, stat.Starts, 10, 4, 1)
		if got := check.IsQuiet(); got != c.quiet {
			t.Errorf("%s: quiet %v", name, got)
		}
		if got := check.Expected[0].Reach.Known(); got != c.decides {
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
// and that more noise lets expect less.
func TestACheckKnowsTheNoise(t *testing.T) {
	var calm, noisy Check
	calm.Expect(trial(t, 1.05), stat.Starts, 10, 4, 1)
	noisy.Expect(trial(t, 1.5), stat.Starts, 10, 4, 1)
	if got := float64(calm.Expected[0].Scatter); math.Abs(got-1.05) > 0.005 {
		t.Errorf("P90 scatters by %v", got)
	}
	if a, b := calm.Expected[0].Reach, noisy.Expected[0].Reach; !(a > 1 && a < 1.02 && b > 1.05) {
		t.Errorf("the reach is %v and %v", a, b)
	}
	windows := trial(t, 1.05, 3)
	windows[3].setP90(t, 1e6)
	if calm.Expect(windows, stat.Starts, 10, 4, 1); math.Abs(float64(calm.Expected[0].Scatter)-1.05) > 0.005 || calm.Void != 1 {
		t.Errorf("%+v", calm)
	}
}

// TestAMachineThatWasNotQuietIsAWarning shows the check on the page.
func TestAMachineThatWasNotQuietIsAWarning(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	e.Check = &Check{Others: report.Others{CPUs: 2, Used: 1.4, Tested: 0.7, Steal: report.Number(math.NaN()), Waited: report.Number(math.NaN()), Programs: []report.Program{{Name: "make", CPUs: 1.3}}}}
	e.Check.Expect(trial(t, 1.1), stat.Starts, 10, 4, 1)
	s := AnalyseSwitched(e, switchedRuns(t, e, func(*Window) {}))
	if text := strings.Join(s.Warnings, "\n"); !strings.Contains(text, "the machine was not quiet: other work uses 1.4 of 2 CPUs (make 1.3), 0.7 of the tested ones") {
		t.Errorf("warnings %q", text)
	}
	var html strings.Builder
	if err := s.Page().WriteHTML(&html); err != nil || !strings.Contains(html.String(), "before the run: other work uses 1.4 of 2 CPUs") {
		t.Errorf("error %v; the page does not show the check", err)
	}
}
