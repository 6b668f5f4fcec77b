package colocation

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/model/unit"
)

func claimOf(t *testing.T, claims []report.Claim, name string) report.Claim {
	t.Helper()
	for _, c := range claims {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no claim %q", name)
	return report.Claim{}
}

// plainRuns returns runs without noise, one for each mode and block. The
// function edit may change any run.
func plainRuns(e Experiment, edit func(*Run)) []Run {
	var runs []Run
	for block := range e.Blocks {
		for _, mode := range e.Modes {
			p99 := 500 * (1 + 0.001*float64(block%3)) // some variation, so that no interval is empty
			r := Run{Run: report.Run{
				Index: len(runs), Block: block, Mode: mode, Length: e.Duration,
				Latency: load.Latency{P50: 100, P75: 150, P90: 200, P99: p99, P999: 900, Max: 2000, Mean: 120},
				LSCPU:   0.3, CPUPercent: 99, Timeslices: 1000, DelayPerRun: 0.5, RunDelay: 500 * time.Microsecond, PSICPU: -1,
			}}
			if mode == report.Tenon || mode == report.Tenon65 || mode == report.Default || mode == report.Default65 || mode == report.Burstable {
				r.FramesPerS, r.BECPU = 0.69*e.SoloFramesPerSecond, 0.69
			}
			edit(&r)
			runs = append(runs, r)
		}
	}
	return runs
}

// judge computes only the claims of an analysis.
func judge(e Experiment, runs []Run) report.Analysis {
	ev := report.Gather(e.Experiment, report.Commons(runs))
	return report.Analysis{Base: report.Result{Claims: claims(ev)}}
}

func TestClaimsGetTheVerdictThatTheDataDeserve(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*Run)
		claim string
		want  stat.Verdict
	}{
		"all equal":               {func(*Run) {}, "tenon-p99", stat.Met},
		"slower than exclusive":   {func(r *Run) { scaleP99(r, report.Tenon, 1.10) }, "tenon-p99", stat.NotMet},
		"slower than warm only":   {func(r *Run) { scaleP99(r, report.ExclusiveWarm, 0.9) }, "tenon-p99", stat.NotMet},
		"slower than cold only":   {func(r *Run) { scaleP99(r, report.Exclusive, 0.9); scaleP99(r, report.ExclusiveAA, 0.9) }, "tenon-p99", stat.NotMet},
		"control biased":          {func(r *Run) { scaleP99(r, report.ExclusiveAA, 1.02) }, "tenon-p99", stat.Refused},
		"control noisy":           {func(r *Run) { scaleP99(r, report.ExclusiveAA, 1+0.2*float64(r.Block%2)) }, "tenon-p99", stat.Refused},
		"tenon noisy":             {func(r *Run) { scaleP99(r, report.Tenon, 0.9+0.2*float64(r.Block%2)) }, "tenon-p99", stat.Undecided},
		"damage on a noisy bench": {func(r *Run) { scaleP99(r, report.ExclusiveAA, 1+0.2*float64(r.Block%2)); scaleP99(r, report.Tenon, 3) }, "tenon-p99", stat.NotMet},
		"goodput":                 {func(*Run) {}, "tenon-goodput", stat.Met},
		"batch work starved":      {func(r *Run) { r.FramesPerS *= 0.7 }, "tenon-goodput", stat.NotMet},
		"CPU full":                {func(*Run) {}, "tenon-cpu", stat.Met},
		"CPU left idle":           {func(r *Run) { r.CPUPercent = 80 }, "tenon-cpu", stat.NotMet},
		"wait as warm":            {func(*Run) {}, "tenon-waiting", stat.Met},
		"wait doubled":            {func(r *Run) { scaleDelay(r, report.Tenon, 2) }, "tenon-waiting", stat.NotMet},
		"burstable waits":         {func(r *Run) { scaleDelay(r, report.Burstable, 70) }, "burstable-waiting", stat.Met},
		"burstable waits little":  {func(r *Run) { scaleDelay(r, report.Burstable, 2) }, "burstable-waiting", stat.NotMet},
		"default ties":            {func(*Run) {}, "default-or-tenon-p99", stat.Tie},
		"default ties in delay":   {func(*Run) {}, "default-or-tenon-waiting", stat.Tie},
		"default is worse":        {func(r *Run) { scaleP99(r, report.Default, 1.4) }, "default-or-tenon-p99", stat.Differs},
		"tenon-65 is worse":       {func(r *Run) { scaleDelay(r, report.Tenon65, 1.4) }, "default-65-or-tenon-65-waiting", stat.Differs},
		"equally busy":            {func(*Run) {}, "equal-utilisation", stat.Met},
		"not equally busy": {func(r *Run) {
			if r.Mode == report.Default65 {
				r.CPUPercent -= 9
			}
		}, "equal-utilisation", stat.NotMet},
		"no tie finer than the control": {func(r *Run) { scaleP99(r, report.ExclusiveAA, 1.02) }, "default-or-tenon-p99", stat.Undecided},
	} {
		e := inventExperiment(48, synthetic.AllModes...)
		got := claimOf(t, judge(e, plainRuns(e, c.edit)).Base.Claims, c.claim)
		if got.Verdict != c.want {
			t.Errorf("%s: claim %s is %q, want %q (%s)", name, c.claim, got.Verdict, c.want, got.Explanation)
		}
	}
}

func scaleP99(r *Run, m report.Mode, factor float64) {
	if r.Mode == m {
		r.Latency.P99 *= factor
	}
}

func scaleDelay(r *Run, m report.Mode, factor float64) {
	if r.Mode == m {
		r.DelayPerRun *= factor
		r.RunDelay = time.Duration(float64(r.RunDelay) * factor)
	}
}

func TestRefusalGivesTheHalfWidth(t *testing.T) {
	r := analyse(goldenCases["noisy"]())
	c := claimOf(t, r.Claims, "tenon-p99")
	if c.Verdict != stat.Refused || !strings.Contains(c.Explanation, "± "+report.Scaled(r.Control.HalfWidth, 100, 1)+" %") {
		t.Errorf("verdict %q, explanation %q; want a refusal with the half-width %v", c.Verdict, c.Explanation, r.Control.HalfWidth)
	}
}

func TestTieIsExplainedOnce(t *testing.T) {
	e := inventExperiment(48, synthetic.AllModes...)
	reasons := 0
	for _, c := range judge(e, plainRuns(e, func(*Run) {})).Base.Claims {
		if c.Verdict == stat.Tie && !strings.Contains(c.Explanation, "A tie") {
			t.Errorf("claim %s is a tie without a reason: %q", c.Name, c.Explanation)
		}
		reasons += strings.Count(c.Explanation, "shares 2")
	}
	if reasons != 1 {
		t.Errorf("the reason is given %d times, want once", reasons)
	}
}

func TestExperimentEndsOnlyAtAPlannedLook(t *testing.T) {
	all := func(blocks int, edit func(*Run)) report.Analysis {
		e := inventExperiment(blocks, synthetic.AllModes...)
		e.Looks = report.LooksOf(0)
		return analysis(e, plainRuns(e, func(r *Run) {
			scaleDelay(r, report.Burstable, 70)
			edit(r)
		}))
	}
	unchanged := func(*Run) {}
	noisyControl := func(r *Run) { scaleP99(r, report.ExclusiveAA, 1+0.2*float64(r.Block%2)) }
	for name, c := range map[string]struct {
		result report.Analysis
		want   bool
	}{
		"clear data":                  {all(48, unchanged), true},
		"clear data between looks":    {all(47, unchanged), false},
		"clear data, too few blocks":  {all(12, unchanged), false},
		"noisy control":               {all(48, noisyControl), false},
		"noisy control, last look":    {all(96, noisyControl), true},
		"no run yet":                  {analysis(inventExperiment(0, synthetic.AllModes...), nil), false},
		"no claim at all":             {analysis(inventExperiment(0, report.Exclusive), nil), false},
		"clearly not met is resolved": {all(48, func(r *Run) { scaleP99(r, report.Tenon, 2); scaleP99(r, report.Default, 3) }), true},
	} {
		if got := c.result.IsResolved(); got != c.want {
			t.Errorf("%s: Resolved = %v, want %v", name, got, c.want)
		}
	}
}

func TestVerdictIsFinalOnlyIfTheResultsDidNotChooseTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		looks []int
		end   report.End
		want  bool
		warns string
	}{
		"ended as planned":        {[]int{48}, report.EndPlanned, true, ""},
		"ended by its time":       {[]int{12, 24, 96}, report.EndTime, true, ""},
		"runs, at a look":         {[]int{48}, "", true, ""},
		"killed between looks":    {[]int{12, 60}, "", false, "before 60 blocks"},
		"stopped by hand":         {[]int{48}, report.EndHand, false, "by hand"},
		"failed":                  {[]int{48}, report.EndFailed, false, "error"},
		"made before looks":       {nil, "", false, "not fixed"},
		"made before looks, done": {nil, report.EndPlanned, false, "not fixed"},
	} {
		e := inventExperiment(48, synthetic.AllModes...)
		e.Looks, e.Ended = c.looks, c.end
		r := analyse(e, plainRuns(e, func(*Run) {}))
		if got := claimOf(t, r.Claims, "tenon-p90"); got.Verdict != stat.Met || got.Final != c.want {
			t.Errorf("%s: verdict %q, final %v; want met and %v", name, got.Verdict, got.Final, c.want)
		}
		if c.warns != "" && !strings.Contains(strings.Join(r.Warnings, "\n"), c.warns) {
			t.Errorf("%s: warnings %q, want one with %q", name, r.Warnings, c.warns)
		}
	}
}

func TestLaterMeasureIsMetOnlyAfterTheEarlierOnes(t *testing.T) {
	e := inventExperiment(48, synthetic.AllModes...)
	claims := judge(e, plainRuns(e, func(r *Run) {
		if r.Mode == report.Tenon {
			r.Latency.P90 *= 1.1 + 0.01*float64(r.Block%3)
		}
	})).Base.Claims
	for name, want := range map[string]stat.Verdict{"tenon-p90": stat.NotMet, "tenon-mean": stat.Undecided, "tenon-p99": stat.Undecided} {
		if got := claimOf(t, claims, name); got.Verdict != want {
			t.Errorf("%s is %q, want %q: %s", name, got.Verdict, want, got.Explanation)
		}
	}
}

func TestFewBlocksSayThatTheyCannotTell(t *testing.T) {
	e := inventExperiment(3, synthetic.AllModes...)
	r := analyse(e, plainRuns(e, func(r *Run) { scaleP99(r, report.Tenon, math.Pow(40, float64(r.Block-1))) }))
	c := claimOf(t, r.Claims, "tenon-p99")
	if !strings.Contains(c.Explanation, "3 blocks cannot tell") || strings.Contains(c.Explanation, "e+") {
		t.Errorf("explanation %q", c.Explanation)
	}
	if c := claimOf(t, r.Claims, "default-or-tenon-p99"); c.Verdict != stat.Undecided || !strings.Contains(c.Explanation, "too few") {
		t.Errorf("%q: %s", c.Verdict, c.Explanation)
	}
}

func TestVoidRunsCountForNothingButAreListed(t *testing.T) {
	e := inventExperiment(48, synthetic.AllModes...)
	clean := plainRuns(e, func(*Run) {})
	spoiled := slices.Clone(clean)
	for i := range e.Modes { // one more block, in which all runs are void and have absurd values
		r := clean[i]
		r.Index, r.Block, r.Void = len(clean)+i, e.Blocks, []string{"client too busy"}
		r.Latency.P99, r.DelayPerRun, r.CPUPercent, r.Requests = 1e9, 1e9, 1, 1e9
		spoiled = append(spoiled, r)
	}
	want, got := analyse(e, clean), analyse(e, spoiled)
	if len(got.VoidRuns) != len(e.Modes) || got.VoidRuns[0].Reasons[0] != "client too busy" {
		t.Errorf("void runs %+v, want %d with their reason", got.VoidRuns, len(e.Modes))
	}
	if diff := cmp.Diff(want.Claims, got.Claims); diff != "" {
		t.Errorf("void runs changed the claims:\n%s", diff)
	}
	for mode, m := range got.Modes {
		m.Void = 0
		if diff := cmp.Diff(want.Modes[mode], m, nanEqual); diff != "" {
			t.Errorf("void runs changed mode %s:\n%s", mode, diff)
		}
	}
}

func TestRepeatedRunReplacesTheVoidOne(t *testing.T) {
	e := inventExperiment(1, report.Exclusive)
	runs := []Run{
		{Run: report.Run{Index: 0, Mode: report.Exclusive, Length: 1, Latency: load.Latency{P99: 900}, Void: []string{"steal"}}},
		{Run: report.Run{Index: 1, Mode: report.Exclusive, Length: 1, Latency: load.Latency{P99: 500}}},
	}
	if got := analyse(e, runs).Modes[report.Exclusive]; got.P99 != 500 || got.Runs != 1 || got.Void != 1 {
		t.Errorf("P99 %v from %d runs, %d void; want 500 from 1, 1 void", got.P99, got.Runs, got.Void)
	}
}

// TestPooledPercentilesComeFromCounts uses two runs, and only one of them has a
// tail. The mean of the runs' percentiles would not be a percentile of all
// requests.
func TestPooledPercentilesComeFromCounts(t *testing.T) {
	histogram := func(us int64, n int64) *hdrhistogram.Histogram {
		h := hdrhistogram.New(1, 60_000_000, 3)
		_ = h.RecordValues(us, n)
		return h
	}
	e := inventExperiment(2, report.Exclusive)
	runs := []Run{
		{Run: report.Run{Block: 0, Mode: report.Exclusive, Length: 1, Histogram: histogram(100, 9900)}},
		{Run: report.Run{Block: 1, Mode: report.Exclusive, Length: 1, Histogram: histogram(1000, 100)}},
	}
	pooled := analyse(e, runs).Modes[report.Exclusive].Pooled
	if pooled == nil || pooled.P99 != 100 || pooled.P999 != 1000 {
		t.Errorf("pooled percentiles %+v, want P99 100 and P99.9 1000", pooled)
	}
	if runs[0].Histogram.TotalCount() != 9900 {
		t.Error("Analyse changed the histogram of a run")
	}
}

func TestResultHasItsDocumentedKeys(t *testing.T) {
	data, err := json.Marshal(analyse(goldenCases["quiet"]()))
	if err != nil {
		t.Fatal(err)
	}
	var result map[string]any
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	for _, mode := range synthetic.AllModes {
		for _, key := range []string{"p50_us", "p75_us", "p90_us", "p99_us", "p999_us", "cpu_percent", "be_frames_per_second", "ls_runqueue_delay_us"} {
			if _, ok := dig(result, "modes", string(mode), key).(float64); !ok {
				t.Errorf("modes.%s.%s is not a number", mode, key)
			}
		}
		for _, percentile := range []string{"p50", "p75", "p90", "p99", "p999"} {
			for _, key := range []string{"estimate", "low", "high"} {
				if _, ok := dig(result, "ratios", string(mode), percentile, key).(float64); !ok && mode != report.Exclusive {
					t.Errorf("ratios.%s.%s.%s is not a number", mode, percentile, key)
				}
				if _, ok := dig(result, "ratios_warm", string(mode), percentile, key).(float64); !ok && mode != report.ExclusiveWarm {
					t.Errorf("ratios_warm.%s.%s.%s is not a number", mode, percentile, key)
				}
			}
		}
		if _, ok := dig(result, "runqueue_delay_ratios", string(mode), "to_exclusive", "estimate").(float64); !ok {
			t.Errorf("runqueue_delay_ratios.%s.to_exclusive.estimate is not a number", mode)
		}
	}
	for _, list := range []string{"claims", "void_runs", "warnings"} {
		if _, ok := result[list].([]any); !ok {
			t.Errorf("%s is not a list", list)
		}
	}
}

func dig(v any, path ...string) any {
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func TestWhatIsUnknownIsNull(t *testing.T) {
	for text, n := range map[string]report.Number{"null": report.Number(math.NaN()), "1.5": 1.5} {
		data, err := json.Marshal(n)
		if err != nil || string(data) != text {
			t.Errorf("Marshal(%v) = %s, %v; want %s", float64(n), data, err, text)
		}
		var back report.Number
		if err := json.Unmarshal(data, &back); err != nil || back.Known() != n.Known() {
			t.Errorf("Unmarshal(%s) = %v, %v", data, float64(back), err)
		}
	}
}

var nanEqual = cmp.Options{
	cmp.Comparer(func(a, b report.Number) bool { return a == b || !a.Known() && !b.Known() }),
	cmpopts.EquateNaNs(),
	cmp.Comparer(func(a, b unit.CPUSet) bool { return a == b }),
}

// TestGoodputIsMeasuredByTheSoloRunOfTheBlock makes the machine slower in one
// block. The lower frame rate in this block must not reduce Tenon's goodput.
func TestGoodputIsMeasuredByTheSoloRunOfTheBlock(t *testing.T) {
	e := Experiment{Experiment: report.Experiment{Header: report.Header{Modes: []report.Mode{report.Exclusive, report.Tenon, report.Solo}, TestedCPUs: unit.CPUSetOf(1)}, SoloFramesPerSecond: 1000, SoloCPU: 1}}
	var runs []Run
	for block, speed := range []float64{40, 20, 30} {
		runs = append(runs,
			Run{Run: report.Run{Block: block, Mode: report.Exclusive, LSCPU: 0.25}},
			Run{Run: report.Run{Block: block, Mode: report.Tenon, FramesPerS: 0.9 * 0.75 * speed}},
			Run{Run: report.Run{Block: block, Mode: report.Solo, FramesPerS: speed, BECPU: 1}})
	}
	if got := float64(analyse(e, runs).Modes[report.Tenon].Goodput); math.Abs(got-0.9) > 1e-9 {
		t.Errorf("goodput %v of idle capacity, want 0.9", got)
	}
	runs[2].Void = []string{"steal"}
	if got := report.Gather(e.Experiment, report.Commons(runs)).IdleCapacity(report.Exclusive); len(got) != 2 {
		t.Errorf("a block without a valid solo run has the idle capacity %v, want none", got)
	}
}
