package colocation

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// concludedOf returns the conclusions of an experiment in which P90 beside Tenon is a
// multiple of that alone, and the service waits a multiple of the time beside requests.
func concludedOf(t *testing.T, starts int, p90, waits float64) *Switched {
	t.Helper()
	e := inventSwitched(starts, switchedModes...)
	return AnalyseSwitched(e, switchedRuns(t, e, func(w *Window) {
		switch w.Mode {
		case report.Tenon:
			w.setP90(t, w.Latency.P90*p90)
		case report.Burstable:
			w.RunDelay = time.Duration(float64(w.RunDelay) * waits)
		}
	}))
}

// TestThreeConclusionsWhateverTheySay checks what the last sentences say for each way
// in which an experiment can end, and that each has the bound that decides.
func TestThreeConclusionsWhateverTheySay(t *testing.T) {
	for name, c := range map[string]struct {
		starts     int
		p90, waits float64
		want       []Saying
		words      []string // parts of the three sentences
	}{
		"as hoped": {12, 1.1, 48, []Saying{Counted, AtMost, AtLeast}, []string{
			"In 1.6 measured minutes under Tenon ffmpeg made 4800 frames (50.0 a second; mean of the starts 50.0 to 50.0) on CPU time that nginx did not use.",
			"In the typical round the time within which 90 of 100 answers came (P90) was under Tenon at most ",
			"With CPU requests for the batch pod of five eighths of those of nginx, nginx waited in the typical round at least ",
		}},
		"faster than alone": {12, 0.9, 48, []Saying{Counted, NotLonger, AtLeast}, []string{
			"ffmpeg", " was under Tenon no longer than alone, beside frozen batch work: at least ", "at least ",
		}},
		"much slower": {12, 2, 48, []Saying{Counted, AtLeast, AtLeast}, []string{"ffmpeg", "was under Tenon at least 9", "at least "}},
		"requests do nothing": {12, 1.1, 0.9, []Saying{Counted, AtMost, NotShown}, []string{
			"ffmpeg", "at most ", "nginx is not shown to wait longer for its CPU in the typical round than under Tenon (−",
		}},
		"too few starts": {1, 1.1, 48, []Saying{Counted, CannotTell, CannotTell}, []string{
			"ffmpeg made 400 frames (50.0 a second) on CPU time",
			"came (P90) longer under Tenon than alone, beside frozen batch work? 10 rounds of 1 start cannot tell. A verdict needs 4 starts",
			"did nginx wait longer for its CPU than under Tenon? 10 rounds of 1 start cannot tell. ",
		}},
	} {
		s := concludedOf(t, c.starts, c.p90, c.waits)
		var says []Saying
		for i, x := range s.Conclusions {
			says = append(says, x.Says)
			if text := s.sentence(x); i < len(c.words) && !strings.Contains(text, c.words[i]) {
				t.Errorf("%s: %q lacks %q", name, text, c.words[i])
			}
		}
		if diff := cmp.Diff(c.want, says); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, x := range s.Conclusions[1:] {
			claim := switchedClaim(t, s, x.Claim)
			if x.Verdict != claim.Verdict || x.Hindered != claim.Hindered || c.starts > 1 && (x.Lower >= claim.Effect.Lower || x.Upper <= claim.Effect.Upper || x.Estimate != claim.Effect.Ratio) {
				t.Errorf("%s: %+v has not the ratio of the claim %+v with wider bounds", name, x, claim)
			}
		}
		if text := strings.Join(s.ending(), " "); strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s: %s", name, text)
		}
		if _, err := json.Marshal(s.Conclusions); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTheBoundsOfASentenceCountItsFigures compares the number of bounds that share the
// error with the bounds that the conclusions have.
func TestTheBoundsOfASentenceCountItsFigures(t *testing.T) {
	for _, c := range concludedOf(t, 12, 1.1, 48).Conclusions {
		bounds := 2
		for _, e := range []*stat.Effect{c.Whole, c.Tail, c.Waits} {
			if e != nil {
				bounds += 2
				if e.Error != c.Error {
					t.Errorf("about %s: a bound is wrong with probability %v, and others with %v", c.About, e.Error, c.Error)
				}
			}
		}
		if c.About.bounds() != bounds {
			t.Errorf("about %s: %d bounds share the error, and there are %d", c.About, c.About.bounds(), bounds)
		}
	}
}

// TestASentenceAboutP90SaysWhatIsWorse lets P90 be lower under Tenon than alone, while
// P99 and the waiting are higher.
func TestASentenceAboutP90SaysWhatIsWorse(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	s := AnalyseSwitched(e, switchedRuns(t, e, in(report.Tenon, func(w *Window) {
		w.setP90(t, 0.8*w.Latency.P90)
		w.WithStalls.P99 *= 2.5
		w.RunDelay = w.RunDelay * 3 / 2
	})))
	c := s.Conclusions[1]
	if c.Says != NotLonger || !(c.Tail.Lower > 1.9) || !(c.Waits.Lower > 1.4) {
		t.Errorf("%+v, P99 %+v, waiting %+v", c, c.Tail, c.Waits)
	}
	if text := s.sentence(c); !strings.Contains(text, "Against alone: P99 "+changeText(*c.Tail)+", waiting for a CPU +") {
		t.Errorf("%q", text)
	}
}

// TestARatioOverTheRunIsThatOfTheTable lets two of ten rounds of a start of Tenon wait
// twenty times as long, so that the typical round and the whole run differ.
func TestARatioOverTheRunIsThatOfTheTable(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	s := AnalyseSwitched(e, switchedRuns(t, e, func(w *Window) {
		if w.Mode == report.Burstable {
			w.RunDelay *= 17
		}
		if w.Mode == report.Tenon && w.Round == 4 {
			w.RunDelay *= 5
		}
	}))
	c := s.Conclusions[2]
	table := s.mode(report.Burstable).Waits / s.mode(report.Tenon).Waits
	if math.Abs(float64(c.Whole.Ratio/table)-1) > 1e-9 || !(c.Lower > 14) || !(c.Whole.Ratio < 13 && c.Whole.Lower < c.Whole.Ratio && c.Whole.Ratio < c.Whole.Upper) {
		t.Errorf("the table has %v; %+v, over the run %+v", table, c, c.Whole)
	}
	if text := s.sentence(c); !strings.Contains(text, ", and over the whole run "+report.FormatNumber(c.Whole.Ratio, 1)+" times as long (×") {
		t.Errorf("%q", text)
	}
	if claim := switchedClaim(t, s, c.Claim); !strings.Contains(claim.explanation(), "Over the whole run: "+changeText(*claim.Whole)) {
		t.Errorf("%q", claim.explanation())
	}
}

// TestWorkInFrozenTurnsIsNoCount finds frames in turns in which ffmpeg was frozen.
func TestWorkInFrozenTurnsIsNoCount(t *testing.T) {
	for frames, want := range map[float64]Saying{0.3: Counted, 3: CannotTell} {
		e := inventSwitched(12, switchedModes...)
		s := AnalyseSwitched(e, switchedRuns(t, e, in(report.Frozen, func(w *Window) { w.Frames = frames })))
		c := s.Conclusions[0]
		if c.Says != want || (c.Hindered == WorkStrayed) != (want == CannotTell) {
			t.Errorf("%v of 40 frames: %+v", frames, c)
		}
		if text := s.sentence(c); want == CannotTell && !strings.HasSuffix(text, "120 rounds of 12 starts cannot tell. "+hindranceWords[WorkStrayed]) {
			t.Errorf("%q", text)
		}
	}
}

// TestNoRoundIsNoConclusion has an experiment of which no round counts.
func TestNoRoundIsNoConclusion(t *testing.T) {
	s := AnalyseSwitched(inventSwitched(12, switchedModes...), nil)
	if len(s.Conclusions) != 3 || len(s.ending()) != 3 {
		t.Fatalf("%+v", s.Conclusions)
	}
	for i, c := range s.Conclusions {
		if text := s.ending()[i]; c.Says != CannotTell || c.Hindered != TooFewRounds || !strings.Contains(text, "0 rounds of 0 starts cannot tell. A verdict needs") {
			t.Errorf("%+v: %s", c, text)
		}
	}
}

// TestAConclusionSaysWhatHindersIt lets the client stand still in one mode.
func TestAConclusionSaysWhatHindersIt(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	s := AnalyseSwitched(e, switchedRuns(t, e, in(report.Frozen, func(w *Window) { w.Spoiled = 0.1 })))
	got := s.Conclusions[1]
	if got.About != AboutAlone || got.Says != CannotTell || got.Hindered != ClientStood || !strings.Contains(s.sentence(got), "cannot tell (−") {
		t.Errorf("%+v: %s", got, s.sentence(got))
	}
}

// TestConclusionsNeedTheirModes runs without the modes of the last two.
func TestConclusionsNeedTheirModes(t *testing.T) {
	for _, c := range []struct {
		modes []report.Mode
		want  []Subject
	}{
		{[]report.Mode{report.Default, report.Tenon}, []Subject{AboutWork}},
		{[]report.Mode{report.Frozen, report.Tenon}, []Subject{AboutWork, AboutAlone}},
		{[]report.Mode{report.Frozen, report.Default}, nil},
	} {
		e := inventSwitched(12, c.modes...)
		var got []Subject
		for _, x := range AnalyseSwitched(e, switchedRuns(t, e, func(*Window) {})).Conclusions {
			got = append(got, x.About)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c.modes, diff)
		}
	}
}

// TestAnInterimLookIsNotTheEnd analyses an experiment at each way to end, and while it
// runs. Only a moment that was planned is final, also for what cannot be told.
func TestAnInterimLookIsNotTheEnd(t *testing.T) {
	for _, c := range []struct {
		ended  report.End
		starts int // of twelve
		early  bool
		final  bool
		clause string
	}{
		{report.EndPlanned, 12, false, true, "the experiment ended as planned"},
		{report.EndPlanned, 4, true, true, "the experiment ended as planned"},
		{report.EndTime, 7, false, true, "the time of the experiment was over after 7 of 12 starts"},
		{report.EndHand, 7, false, false, "stopped by hand after 7 of 12 starts, so nothing is final"},
		{report.EndHand, 4, true, false, "stopped by hand after 4 of 12 starts, so nothing is final"},
		{report.EndFailed, 1, false, false, "ended by an error after 1 of 12 starts, so nothing is final"},
		{"", 7, false, false, "not ended: 7 of 12 starts, so nothing is final"},
		{"", 0, false, false, "not ended: 0 of 12 starts, so nothing is final"},
		{"", 8, true, true, "a planned look after 8 of 12 starts"},
		{"", 12, false, true, "a planned look after 12 of 12 starts"},
	} {
		e := inventSwitched(12, switchedModes...)
		e.Looks, e.Ended = stat.StartLooks(12, c.early), c.ended
		s := AnalyseSwitched(e, switchedRuns(t, e, func(*Window) {})[:c.starts])
		for _, x := range s.Conclusions {
			// Two bounds of the work, six about alone, four about requests.
			if want := stat.RatioError / 12 / float64(len(e.Looks)); math.Abs(x.Error-want) > 1e-12 {
				t.Errorf("%d looks: the bounds about %s are wrong with probability %v, want %v", len(e.Looks), x.About, x.Error, want)
			}
			if x.Final != c.final {
				t.Errorf("%q after %d starts: the conclusion about %s is final: %v", c.ended, c.starts, x.About, x.Final)
			}
		}
		p := s.Page()
		if want := "In short (95 % intervals, all together); " + c.clause; p.Short.Title != want || p.Sections[0].Title != want {
			t.Errorf("%q after %d starts: %q and %q, want %q", c.ended, c.starts, p.Short.Title, p.Sections[0].Title, want)
		}
		if warned := strings.Contains(strings.Join(s.Warnings, " "), "no verdict is final"); warned == c.final {
			t.Errorf("%q after %d starts: warnings %q", c.ended, c.starts, s.Warnings)
		}
	}
}

// TestOtherBatchWorkIsCountedInTimeAlone has the batch work of a user, whose amount is
// relative to what it does alone.
func TestOtherBatchWorkIsCountedInTimeAlone(t *testing.T) {
	e := inventSwitched(12, switchedModes...)
	e.Own = &Own{Service: "redis", Batch: []OwnWork{{Name: "xz", Unit: "MiB", Solo: 4}}}
	s := AnalyseSwitched(e, switchedRuns(t, e, in(report.Tenon, func(w *Window) { w.Frames = 0.5 * w.Length.Seconds() })))
	if got, want := s.ending()[0], "In 1.6 measured minutes under Tenon the batch work did what takes it 0.8 minutes alone (0.50 a minute; mean of the starts 0.50 to 0.50), on CPU time that redis did not use."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPrintedBoundsHold prints bounds that a rounding to the nearest number would make
// too narrow.
func TestPrintedBoundsHold(t *testing.T) {
	for _, c := range []struct {
		lower, upper float64
		want         string
	}{
		{0.8927, 0.9597, "−10.8 to −4.0 %"}, {0.99961, 1.0004, "−0.1 to +0.1 %"}, {1, 1.041, "0.0 to +4.1 %"},
		{15.47, 20.72, "×15.4 to ×20.8"}, {1.15, 2.5, "×1.1 to ×2.5"}, {0.85, 1.1, "−15.0 to +10.0 %"},
	} {
		if got := outward(report.Number(c.lower), report.Number(c.upper), " to "); got != c.want {
			t.Errorf("%v to %v: %q, want %q", c.lower, c.upper, got, c.want)
		}
	}
	c := Conclusion{Estimate: 25.5, Lower: 25.16, Upper: 25.84, Error: stat.RatioError}
	if got := rateText(c, "a second", 1); got != " (25.5 a second; mean of the starts 25.1 to 25.9)" {
		t.Errorf("%q", got)
	}
	if got := tenths(15.05, math.Floor); got != "15.0" {
		t.Errorf("%s", got)
	}
}
