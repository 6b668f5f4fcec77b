package colocation

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// demoModes are the modes of make demo.
var demoModes = []report.Mode{report.Exclusive, report.ExclusiveAA, report.Default, report.Burstable, report.Tenon}

// endingOf returns the last sentences of the table of an experiment.
func endingOf(t *testing.T, e Experiment, noise float64) (title string, sentences []string) {
	t.Helper()
	var b bytes.Buffer
	if err := Analyse(e, inventedRuns(e, noise)).Page().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	_, end, found := strings.Cut(b.String(), "\nIn short")
	if !found {
		t.Fatalf("the table has no last sentences:\n%s", &b)
	}
	lines := strings.Split(strings.TrimSpace(end), "\n")
	for _, l := range lines[1:] {
		text, is := strings.CutPrefix(l, "  - ")
		if !is {
			t.Errorf("a sentence needs more than one line: %q", l)
		}
		sentences = append(sentences, text)
	}
	return lines[0], sentences
}

func decidedIn(s string) bool {
	return !strings.Contains(s, "cannot tell") && !strings.Contains(s, "(mean of") && !strings.Contains(s, "two equal modes")
}

// TestTheLastLinesBeginWithTheDecisions checks the end of a demo, on machines
// with different noise. It must have at most five lines, and the undecided
// claims must come last.
func TestTheLastLinesBeginWithTheDecisions(t *testing.T) {
	for _, c := range []struct {
		blocks int
		noise  float64
		first  string // a part of the first sentence; empty: nothing is decided
	}{
		{14, 0.02, "Batch work with requests: the service waits"},
		{14, 0.3, "Batch work with requests: the service waits"},
		{3, 0.02, ""},
		{1, 0.02, ""},
	} {
		e := inventExperiment(c.blocks, demoModes...)
		e.Looks, e.Ended = report.LooksOf(c.blocks), report.EndPlanned
		_, sentences := endingOf(t, e, c.noise)
		if len(sentences) == 0 || len(sentences) > maxSentences {
			t.Errorf("%d blocks, noise %v: %d sentences", c.blocks, c.noise, len(sentences))
		}
		open := false
		for i, s := range sentences {
			if textlayout.Columns(s) > textlayout.Width-4 {
				t.Errorf("too long for one line: %q", s)
			}
			if decidedIn(s) && open {
				t.Errorf("%d blocks, noise %v: %q comes after what is undecided", c.blocks, c.noise, s)
			}
			open = open || !decidedIn(s)
			if i == 0 && (c.first == "") == decidedIn(s) || i == 0 && !strings.HasPrefix(s, c.first) {
				t.Errorf("%d blocks, noise %v: the first sentence is %q, want %q", c.blocks, c.noise, s, c.first)
			}
		}
	}
}

func TestALastLineSaysThatAHandStoppedIt(t *testing.T) {
	e := inventExperiment(12, demoModes...)
	e.Ended = report.EndHand
	if title, _ := endingOf(t, e, 0.02); !strings.Contains(title, "stopped by hand") {
		t.Errorf("the title is %q", title)
	}
}

// TestADifferenceIsSaidInItsDirection checks the words of each kind of decided
// sentence.
func TestADifferenceIsSaidInItsDirection(t *testing.T) {
	for factor, want := range map[float64]string{
		0.5: "BestEffort pods: 90 of 100 answers take 50 % less long (", 1.4: "BestEffort pods: 90 of 100 answers take 40 % longer (",
		8: "BestEffort pods: 90 of 100 answers take 8.0 times as long (", 1: "BestEffort pods: 90 of 100 answers take as long, within 3 %.",
	} {
		e := inventExperiment(32, report.Exclusive, report.ExclusiveAA, report.Default, report.Tenon)
		e.Looks, e.Ended = report.LooksOf(32), report.EndPlanned
		runs := inventedRuns(e, 0.001)
		tenon := map[int]float64{}
		for _, r := range runs {
			if r.Mode == report.Tenon {
				tenon[r.Block] = r.Latency.P90
			}
		}
		for i := range runs {
			if r := &runs[i]; r.Mode == report.Default && tenon[r.Block] > 0 {
				r.Latency.P90 = tenon[r.Block] * factor * (1 + 0.001*float64(r.Block%3))
			}
		}
		a := Analyse(e, runs)
		text := strings.Join(ending(a.Evidence(), a.Base), "\n")
		if !strings.Contains(text, want) {
			t.Errorf("a ratio of %v: want %q in\n%s", factor, want, text)
		}
	}
}

// TestTheLastLinesDoNotContradictTheClaims makes the service wait a little longer
// beside usual batch work, so that a one-sided bound excludes equality and the
// two-sided test of the claims does not. No sentence may then say that it waits
// longer.
func TestTheLastLinesDoNotContradictTheClaims(t *testing.T) {
	for mode, where := range map[report.Mode]string{report.Nice: "Batch work at nice 19", report.Burstable: "Batch work with requests"} {
		e := inventExperiment(32, report.Exclusive, report.ExclusiveAA, report.Tenon, mode)
		e.Looks, e.Ended = report.LooksOf(32), report.EndPlanned
		for _, c := range []struct {
			mean float64 // of the logarithms of the ratios
			want string
		}{{0.1375, where + ": does the service wait longer? 32 blocks cannot tell ("}, {0.25, where + ": the service waits 28 % longer for its CPU ("}} {
			a := Analyse(e, plainRuns(e, func(r *Run) {
				x := float64(r.Block%16)/8 - 0.9375 // symmetric to 0
				scaleDelay(r, mode, math.Exp(c.mean+0.8*x*math.Abs(x)))
			}))
			if bound := a.Evidence().Ratio(mode, report.Tenon, report.Waiting).ClaimLower; bound <= 1 {
				t.Fatalf("the one-sided bound is %v", bound)
			}
			if got := ending(a.Evidence(), a.Base); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, c.want) }) {
				t.Errorf("want %q in %q", c.want, got)
			}
		}
	}
}

// TestTheLastLinesRespectFailures checks that no sentence speaks for Tenon if the
// service failed beside its batch work, although all numbers are equal or better.
func TestTheLastLinesRespectFailures(t *testing.T) {
	e := inventExperiment(32, demoModes...)
	e.Looks, e.Ended = report.LooksOf(32), report.EndPlanned
	runs := plainRuns(e, func(r *Run) { scaleDelay(r, report.Burstable, 70) })
	for failed, decided := range map[int]int{0: 5, 3: 0} {
		a := Analyse(e, withVoid(runs, failed, overloaded, func(*Run) {}, report.Tenon))
		n := 0
		for _, s := range ending(a.Evidence(), a.Base) {
			if decidedIn(s) {
				n++
			}
		}
		if n != decided {
			t.Errorf("%d failures: %d sentences are decided, want %d: %q", failed, n, decided, ending(a.Evidence(), a.Base))
		}
	}
}

// TestTwoEqualModesHaveTheirInterval has an A/A control whose interval of P99 does not lie
// around equality, in an experiment without Tenon.
func TestTwoEqualModesHaveTheirInterval(t *testing.T) {
	e := inventExperiment(3, report.Exclusive, report.ExclusiveAA, report.SLOAware)
	a := Analyse(e, plainRuns(e, func(r *Run) {
		if r.Mode == report.ExclusiveAA {
			r.Latency.P99 *= 1.3 + 0.05*float64(r.Block)
		}
	}))
	control := a.Evidence().Resolution(report.P99).Control
	if !(control.Low > 1 && control.High < 2) {
		t.Fatalf("the control is %+v", control)
	}
	want := "The slowest answer of 100 (P99): two equal modes differ by " + report.Change(control.Value) + " (" + report.Span(control) + ")."
	if got := ending(a.Evidence(), a.Base); !slices.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if title := a.Page().Short.Title; strings.Contains(title, "Tenon") {
		t.Errorf("no mode is Tenon, and the title is %q", title)
	}
}
