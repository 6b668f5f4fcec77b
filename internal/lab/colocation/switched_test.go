package colocation

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

var switchedModes = []report.Mode{report.Frozen, report.Default, report.Burstable, report.Tenon}

// inventSwitched returns an experiment that ended as planned.
func inventSwitched(starts int, modes ...report.Mode) Experiment {
	e := inventExperiment(starts, modes...)
	e.Looks, e.Ended, e.Duration = stat.StartLooks(starts, false), report.EndPlanned, time.Duration(10*len(modes))*time.Second
	e.Design, e.Turn, e.Settle = DesignSwitch, time.Second, 200*time.Millisecond
	return e
}

// latencies returns a histogram whose P90 is p90.
func latencies(t *testing.T, p90 float64) load.Packed {
	t.Helper()
	h := load.NewPacked()
	for value, n := range map[float64]int64{p90 / 2: 50, p90: 45, 3 * p90: 5} {
		if err := h.RecordValues(int64(math.Round(value)), n); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// setP90 sets the P90 of a window, with and without the requests that stalls of the
// client delayed.
func (w *Window) setP90(t *testing.T, p90 float64) {
	w.Early, w.Late = latencies(t, p90), latencies(t, p90)
	w.Latency = load.Latency{P50: p90 / 2, P90: p90, P99: 3 * p90}
	w.WithStalls = &load.Latency{P50: p90 / 2, P90: p90, P99: 3 * p90}
}

// switchedRuns returns starts with ten rounds of turns, with a little noise. edit may
// change any window.
func switchedRuns(t *testing.T, e Experiment, edit func(*Window)) []Run {
	rng := rand.New(rand.NewPCG(4, 5))
	var runs []Run
	for start := 1; start <= e.Blocks; start++ {
		r := Run{Run: report.Run{Index: start, Block: start, Mode: report.Switched, Length: e.Duration, PSICPU: -1}}
		for round := 1; round <= 10; round++ {
			for _, mode := range e.Modes {
				w := Window{Round: round, Run: report.Run{
					Block: start, Mode: mode, Length: 800 * time.Millisecond, Requests: 2400, LSCPU: 0.3, CPUPercent: 99, Timeslices: 1000,
					RunDelay: time.Duration(500e3 * math.Exp(0.05*rng.NormFloat64())), PSICPU: -1,
				}}
				w.setP90(t, 2000*math.Exp(0.05*rng.NormFloat64()))
				if !mode.Spec().Frozen {
					w.BECPU, w.Frames, w.FramesPerS = 0.69*math.Exp(0.01*rng.NormFloat64()), 40, 50
				}
				edit(&w)
				r.Windows = append(r.Windows, w)
			}
		}
		runs = append(runs, r)
	}
	return runs
}

// in makes a change to the windows of one mode.
func in(mode report.Mode, change func(*Window)) func(*Window) {
	return func(w *Window) {
		if w.Mode == mode {
			change(w)
		}
	}
}

func switchedClaim(t *testing.T, s *Switched, name string) SwitchedClaim {
	t.Helper()
	i := slices.IndexFunc(s.Questions, func(c SwitchedClaim) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no claim %q", name)
	}
	return s.Questions[i]
}

func TestSwitchedModesGetTheVerdictThatTheDataDeserve(t *testing.T) {
	faster := func(by float64) func(*Window) { return func(w *Window) { w.setP90(t, w.Latency.P90*by) } }
	waits := func(by float64) func(*Window) {
		return func(w *Window) { w.RunDelay = time.Duration(float64(w.RunDelay) * by) }
	}
	for name, c := range map[string]struct {
		edit  func(*Window)
		claim string
		want  stat.Verdict
		why   Hindrance
	}{
		"as alone":              {func(*Window) {}, "tenon-to-frozen-p90", stat.Met, ""},
		"slower than alone":     {in(report.Tenon, faster(1.5)), "tenon-to-frozen-p90", stat.NotMet, ""},
		"equal to BestEffort":   {func(*Window) {}, "tenon-to-default-p90", stat.Tie, ""},
		"faster":                {in(report.Tenon, faster(0.8)), "tenon-to-default-p90", stat.Differs, ""},
		"waits as long":         {func(*Window) {}, "tenon-to-default-waiting", stat.Tie, ""},
		"requests make it wait": {in(report.Burstable, waits(48)), "burstable-to-tenon-waiting", stat.Met, ""},
		"requests do little":    {in(report.Burstable, waits(2)), "burstable-to-tenon-waiting", stat.NotMet, ""},
		"the same work":         {func(*Window) {}, "tenon-to-default-batch-cpu", stat.Met, ""},
		"less work":             {in(report.Tenon, func(w *Window) { w.BECPU *= 0.9 }), "tenon-to-default-batch-cpu", stat.NotMet, ""},
		"the service failed": {in(report.Tenon, func(w *Window) {
			if w.Round == 3 {
				w.Discard(report.Failed, "10 requests failed")
			}
		}), "tenon-to-frozen-p90", stat.Undecided, ServiceFailed},
		"it failed elsewhere": {in(report.Burstable, func(w *Window) {
			if w.Round == 3 {
				w.Discard(report.Failed, "10 requests failed")
			}
		}), "tenon-to-frozen-p90", stat.Met, ""},
		"the client stood":             {in(report.Frozen, func(w *Window) { w.Spoiled = 0.1 }), "tenon-to-frozen-p90", stat.Undecided, ClientStood},
		"the client hid slow requests": {in(report.Frozen, func(w *Window) { w.Latency.P90 /= 1.2 }), "tenon-to-frozen-p90", stat.Undecided, ClientStood},
		"one mode is disturbed": {in(report.Frozen, func(w *Window) {
			if w.Round%3 == 0 {
				w.Discard(report.Disturbed, "steal")
			}
		}), "tenon-to-frozen-p90", stat.Undecided, UnequallyDisturbed},
		"all modes are disturbed": {func(w *Window) {
			if w.Round%3 == 0 {
				w.Discard(report.Disturbed, "steal")
			}
		}, "tenon-to-frozen-p90", stat.Met, ""},
	} {
		e := inventSwitched(12, switchedModes...)
		got := switchedClaim(t, AnalyseSwitched(e, switchedRuns(t, e, c.edit)), c.claim)
		if got.Verdict != c.want || got.Hindered != c.why || got.Final != (c.why == "") {
			t.Errorf("%s: claim %s is %q (%s) by %+v, final %v; want %q (%s)", name, c.claim, got.Verdict, got.Hindered, got.Effect, got.Final, c.want, c.why)
		}
	}
}

// TestARoundCountsWholeOrNotAtAll checks that each mode has the same number of
// windows, whatever was disturbed or is missing.
func TestARoundCountsWholeOrNotAtAll(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	runs := switchedRuns(t, e, in(report.Default, func(w *Window) {
		if w.Round == 2 {
			w.Discard(report.Disturbed, "steal")
		}
	}))
	runs[0].Windows = runs[0].Windows[:len(runs[0].Windows)-1]
	s := AnalyseSwitched(e, runs)
	if s.RoundsUsed != 12*9-1 || s.RoundsLost != 13 {
		t.Errorf("%d rounds count and %d do not", s.RoundsUsed, s.RoundsLost)
	}
	for _, m := range s.Measured {
		if m.Windows != s.RoundsUsed {
			t.Errorf("%s has %d windows in %d rounds", m.Mode, m.Windows, s.RoundsUsed)
		}
	}
}

func TestAQuestionIsAskedOnlyIfItsModesRun(t *testing.T) {
	for _, c := range []struct {
		modes []report.Mode
		want  []string
	}{
		{[]report.Mode{report.Frozen, report.Default}, nil},
		{[]report.Mode{report.Burstable, report.Tenon}, []string{"burstable-to-tenon-waiting"}},
		{[]report.Mode{report.BurstableEighth, report.Tenon, report.BurstableFull}, []string{"burstable-eighth-to-tenon-waiting", "burstable-full-to-tenon-waiting"}},
		{[]report.Mode{report.Default, report.TenonNoSlices}, []string{"tenon-no-slices-to-default-p90", "tenon-no-slices-to-default-waiting", "tenon-no-slices-to-default-batch-cpu"}},
	} {
		e := inventSwitched(12, c.modes...)
		var got []string
		for _, q := range AnalyseSwitched(e, switchedRuns(t, e, func(*Window) {})).Questions {
			got = append(got, q.Name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c.modes, diff)
		}
	}
}

func TestAStartThatIsRepeatedCountsOnce(t *testing.T) {
	e := inventSwitched(4, switchedModes...)
	runs := switchedRuns(t, e, func(*Window) {})
	bad := runs[2]
	bad.Index, bad.Windows = 9, nil
	bad.Discard(report.Disturbed, "only 3 of 10 rounds count")
	s := AnalyseSwitched(e, append(runs, bad))
	if s.StartsUsed != 4 || s.RoundsUsed != 40 || len(s.VoidStarts) != 1 {
		t.Errorf("%d starts, %d rounds, %d void starts", s.StartsUsed, s.RoundsUsed, len(s.VoidStarts))
	}
}

func TestSwitchedModesEndAtALook(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	e.Looks, e.Ended = stat.StartLooks(0, true), ""
	runs := switchedRuns(t, e, in(report.Burstable, func(w *Window) { w.RunDelay *= 48 }))
	for starts, want := range map[int]bool{3: false, 4: true, 5: false, 8: true, 12: true} {
		if got := AnalyseSwitched(e, runs[:starts]).IsResolved(); got != want {
			t.Errorf("after %d starts: resolved %v", starts, got)
		}
	}
	open := switchedRuns(t, e, in(report.Tenon, func(w *Window) { w.setP90(t, w.Latency.P90*(1+0.6*float64(w.Block%2))) }))
	for starts, want := range map[int]bool{4: false, 8: false, 12: true} {
		if got := AnalyseSwitched(e, open[:starts]).IsResolved(); got != want {
			t.Errorf("after %d starts with open questions: resolved %v", starts, got)
		}
	}
}

// TestThePageSaysWhatDecides checks that the page of an experiment of any size can be
// written, and has its sentences and the bound that decides.
func TestThePageSaysWhatDecides(t *testing.T) {
	for _, starts := range []int{1, 3, 12} {
		e := inventSwitched(starts, switchedModes...)
		s := AnalyseSwitched(e, switchedRuns(t, e, in(report.Burstable, func(w *Window) { w.RunDelay *= 48 })))
		var text, html bytes.Buffer
		if err := s.Page().WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if err := s.Page().WriteHTML(&html); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "NaN") || strings.Contains(text.String(), "Inf") || !strings.Contains(text.String(), "); the experiment ended as planned\n") {
			t.Errorf("%d starts:\n%s", starts, &text)
		}
		if decided := !strings.Contains(text.String(), "CANNOT TELL"); decided != (starts >= stat.LeastStarts) {
			t.Errorf("%d starts:\n%s", starts, &text)
		}
		if starts == 12 {
			e := switchedClaim(t, s, "burstable-to-tenon-waiting").Effect
			if bounds := outward(e.Lower, e.Upper, " … "); !strings.Contains(strings.Join(strings.Fields(text.String()), " "), bounds) {
				t.Errorf("no claim has the bounds %s:\n%s", bounds, &text)
			}
		}
	}
}

// TestEachSizeOfRequestsHasItsSentence lets the service wait beside requests of each
// size.
func TestEachSizeOfRequestsHasItsSentence(t *testing.T) {
	for mode, want := range map[report.Mode]string{
		report.BurstableEighth: "With CPU requests for the batch pod of an eighth of those of nginx, nginx waited ",
		report.BurstableHalf:   "With CPU requests for the batch pod of half of those of nginx, nginx waited ",
		report.BurstableFull:   "With CPU requests for the batch pod of the size of those of nginx, nginx waited ",
		report.Burstable:       "With CPU requests for the batch pod of five eighths of those of nginx, nginx waited ",
	} {
		e := inventSwitched(12, mode, report.Tenon)
		s := AnalyseSwitched(e, switchedRuns(t, e, in(mode, func(w *Window) { w.RunDelay *= 48 })))
		if list := s.Page().Short.Items; len(list) == 0 || !strings.HasPrefix(list[len(list)-1], want+"in the typical round at least ") {
			t.Errorf("%s: %q, want %q", mode, list, want)
		}
	}
}

// TestCarryOverIsSeen lets something of the mode before remain in the first half of
// each window.
func TestCarryOverIsSeen(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	s := AnalyseSwitched(e, switchedRuns(t, e, in(report.Frozen, func(w *Window) { w.Early = latencies(t, 1.2*w.Latency.P90) })))
	for _, m := range s.Measured {
		if got := float64(m.CarryOver.Ratio); m.Mode == report.Frozen && math.Abs(got-1.2) > 0.01 || m.Mode != report.Frozen && math.Abs(got-1) > 0.01 {
			t.Errorf("%s: %+v", m.Mode, m.CarryOver)
		}
		if !m.OddEven.IsEnough() {
			t.Errorf("%s: odd to even rounds %+v", m.Mode, m.OddEven)
		}
	}
	if !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, "frozen: the first half of a turn differs") }) {
		t.Errorf("warnings %q", s.Warnings)
	}
}

// TestAStartIsReadAsItWasWritten checks that windows and their histograms survive.
func TestAStartIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	e := inventSwitched(4, switchedModes...)
	runs := switchedRuns(t, e, func(*Window) {})
	if err := report.Create(dir, &e); err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		if err := report.SaveRun(dir, &runs[i]); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got, want bytes.Buffer
	if err := f.Page().WriteText(&got); err != nil {
		t.Fatal(err)
	}
	if err := AnalyseSwitched(e, runs).Page().WriteText(&want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Error(diff)
	}
	if m := Combine([]string{dir}, report.Default, func(string) error { return nil }); len(m.Included) != 0 || len(m.Excluded) != 1 {
		t.Errorf("a joint analysis includes %q", m.Included)
	}
}

func TestEveryKeyOfSwitchedModesIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/result.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{SwitchedResult{}, SwitchedMode{}, SwitchedClaim{}, Conclusion{}, Check{}, report.Others{}, report.Program{}, Expectation{}, stat.Size{}, stat.Question{}, stat.Effect{}, stat.Rare{}, Window{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(string(page), key) {
				t.Errorf("docs/result.md does not name the key %s of %s", key, typ.Name())
			}
		}
	}
}

// TestAVoidStartForgetsNoFailure repeats a start of which other work spoiled most rounds,
// and in which the service failed in turns of a mode.
func TestAVoidStartForgetsNoFailure(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	again := switchedRuns(t, e, func(*Window) {})
	void := switchedRuns(t, e, func(w *Window) {
		switch {
		case w.Round < 8:
			w.Discard(report.Disturbed, "other work used 60 % of the tested CPUs")
		case w.Mode == report.Tenon:
			w.Discard(report.Failed, "10 requests failed")
		}
	})[3]
	void.Index = 4
	void.Discard(report.Disturbed, "only 3 of 10 rounds were measured")
	for i := range again {
		if again[i].Index >= 4 {
			again[i].Index++
		}
	}
	s := AnalyseSwitched(e, slices.Insert(slices.Clone(again), 3, void))
	if got := switchedClaim(t, s, "tenon-to-frozen-p90"); got.Verdict != stat.Undecided || got.Hindered != ServiceFailed || got.Final {
		t.Errorf("%q (%s), final %v", got.Verdict, got.Hindered, got.Final)
	}
	if m := s.mode(report.Tenon); m.Failures != 3 || m.Disturbances != 7 || m.Windows != 120 {
		t.Errorf("%d failures and %d disturbances beside %d windows", m.Failures, m.Disturbances, m.Windows)
	}
	void.Discard(report.NotItsMode, "the batch work reported no progress")
	if got := switchedClaim(t, AnalyseSwitched(e, slices.Insert(slices.Clone(again), 3, void)), "tenon-to-frozen-p90"); got.Verdict != stat.Met {
		t.Errorf("a start that did not measure its modes: %q (%s)", got.Verdict, got.Hindered)
	}
}

// TestAVerdictThatRestsOnVoidRoundsSaysSo has seconds that make P90 under Tenon twice as
// high, and of which the rule about disturbances removes all.
func TestAVerdictThatRestsOnVoidRoundsSaysSo(t *testing.T) {
	for _, c := range []struct {
		ratio float64
		rests bool
	}{{1, false}, {2, true}} {
		e := inventSwitched(12, switchedModes...)
		s := AnalyseSwitched(e, switchedRuns(t, e, func(w *Window) {
			if w.Round > 6 {
				w.Discard(report.Disturbed, "other work used 60 % of the tested CPUs")
				if w.Mode == report.Tenon {
					w.setP90(t, c.ratio*w.Latency.P90)
				}
			}
		}))
		got := switchedClaim(t, s, "tenon-to-frozen-p90")
		if got.Verdict != stat.Met || got.Undropped == nil || got.Undropped.Effect.Rounds != 120 || got.Effect.Rounds != 72 {
			t.Fatalf("%+v, with all rounds %+v", got.Answer, got.Undropped)
		}
		if says := strings.Contains(got.explanation(), "With the rounds that disturbances made void, the verdict would be "); says != c.rests {
			t.Errorf("P90 %v times as high in void rounds: %q", c.ratio, got.explanation())
		}
	}
	e := inventSwitched(12, switchedModes...)
	if got := switchedClaim(t, AnalyseSwitched(e, switchedRuns(t, e, func(*Window) {})), "tenon-to-frozen-p90"); got.Undropped != nil {
		t.Errorf("nothing was disturbed: %+v", got.Undropped)
	}
	// A start that was void as a whole, although none of its windows is, and its repetition.
	runs := switchedRuns(t, e, func(*Window) {})
	void := switchedRuns(t, e, in(report.Tenon, func(w *Window) { w.setP90(t, 40*w.Latency.P90) }))[11]
	void.Discard(report.Disturbed, "the client itself did not run for 6 % of the requests")
	runs[11].Index = 13
	got := switchedClaim(t, AnalyseSwitched(e, slices.Insert(runs, 11, void)), "tenon-to-frozen-p90")
	if got.Verdict != stat.Met || got.Undropped == nil || got.Undropped.Verdict == stat.Met || got.Undropped.Effect.Rounds != 120 {
		t.Errorf("%q, and with the first try of the last start %+v", got.Verdict, got.Undropped)
	}
}

// TestABadStartOfAtLeastIsHalfAsHigh has a start in which requests hardly make the service
// wait. For a claim "at least" that is the bad one.
func TestABadStartOfAtLeastIsHalfAsHigh(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	s := AnalyseSwitched(e, switchedRuns(t, e, in(report.Burstable, func(w *Window) {
		w.RunDelay *= 48
		switch w.Block {
		case 2:
			w.RunDelay /= 4
		case 3:
			w.RunDelay *= 4
		}
	})))
	got := switchedClaim(t, s, "burstable-to-tenon-waiting")
	if got.Rare.Seen != 1 || got.Rare.Factor != 0.5 || !strings.Contains(got.explanation(), "Starts in which it was half as high or less: 1 of 12;") {
		t.Errorf("%+v: %q", got.Rare, got.explanation())
	}
}

// TestTheControlOfTurnsShowsWhatItIsFor has alone twice in each round: equal, and with
// something that the turn before leaves for a whole turn.
func TestTheControlOfTurnsShowsWhatItIsFor(t *testing.T) {
	for left, want := range map[float64]stat.Verdict{1: stat.Tie, 1.3: stat.Differs} {
		e := inventSwitched(12, append([]report.Mode{report.FrozenAA}, switchedModes...)...)
		s := AnalyseSwitched(e, switchedRuns(t, e, in(report.FrozenAA, func(w *Window) { w.setP90(t, left*w.Latency.P90) })))
		if got := switchedClaim(t, s, "frozen-aa-to-frozen-p90"); got.Verdict != want {
			t.Errorf("%v times as high: %q by %+v", left, got.Verdict, got.Effect)
		}
		if got := switchedClaim(t, s, "frozen-aa-to-frozen-waiting"); got.Verdict != stat.Tie {
			t.Errorf("waiting: %q by %+v", got.Verdict, got.Effect)
		}
		if n := len(s.Conclusions); n != 3 {
			t.Errorf("%d conclusions", n)
		}
	}
}

// TestAFailureIsNamedAlsoIfNoRoundIsLeft lets the service fail in all turns of a mode.
func TestAFailureIsNamedAlsoIfNoRoundIsLeft(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	s := AnalyseSwitched(e, switchedRuns(t, e, in(report.Tenon, func(w *Window) { w.Discard(report.Failed, "10 requests failed") })))
	if got := switchedClaim(t, s, "tenon-to-frozen-p90"); got.Verdict != stat.Undecided || got.Hindered != ServiceFailed || s.RoundsUsed != 0 {
		t.Errorf("%d rounds: %q (%s)", s.RoundsUsed, got.Verdict, got.Hindered)
	}
}
