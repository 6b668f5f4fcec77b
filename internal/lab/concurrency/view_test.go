package concurrency

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestTheLegendDescribesTheTable checks the sum that the legend names, with a
// reference that used 1.4 CPUs, and a pinned job that used one.
func TestTheLegendDescribesTheTable(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	var all []jobs.Job
	add := func(how string, limit unit.MilliCPU, seconds, cpu float64) {
		all = append(all, jobs.Job{
			Host: "a", Type: how, Concurrency: 1, CPU: limit, In: at, Out: at.Add(time.Duration(seconds * float64(time.Second))),
			Extra: jobs.Extra{Strategy: how, CPUSeconds: node.Some(cpu)},
		})
		at = at.Add(time.Hour)
	}
	add("unbounded", 0, 10, 14)
	add("pinned", 1000, 12, 12)
	r := Analyse(Experiment{}, all)
	if len(r.Options) != 2 {
		t.Fatalf("%d options, want 2", len(r.Options))
	}
	reference := r.Options[1].Shares
	for _, o := range r.Options {
		s := o.Shares
		if want := s.Cost.Value * float64(reference.CPUs/s.CPUs); math.Abs(s.Time.Value-want) > 1e-9 {
			t.Errorf("%s: time × %.3f, and CPU time × %.3f · %.2f CPUs of the reference ÷ %.2f is %.3f", o.Strategy, s.Time.Value, s.Cost.Value, reference.CPUs, s.CPUs, want)
		}
	}
	var b bytes.Buffer
	if err := r.Page().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	if strings.Contains(text, "CPU time ÷ CPUs used") || !strings.Contains(text, "not relative: time × = CPU time × multiplied by the CPUs of the reference and divided by the CPUs of the row") {
		t.Errorf("the legend is wrong:\n%s", text)
	}
}

// TestNoSentenceHasAnUnknownFigure uses a result whose second variable did not
// vary.
func TestNoSentenceHasAnUnknownFigure(t *testing.T) {
	r := Result{Named: "limit of a job", Causes: []Cause{{Variable: "limit of a job", Adjusted: 0.9}, {Variable: "memory of a job", Adjusted: unknownNumber}}}
	if got, want := explanation(r), "The variable that explains most of the differences in the CPU time of a job is: limit of a job, 90.0 % (R², adjusted); no other variable varied enough to be judged."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Causes[0].Adjusted = unknownNumber
	if got := explanation(r); strings.Contains(got, report.Unknown) {
		t.Errorf("%q has an unknown figure", got)
	}
}

func TestTheNoiseIsNamedWithItsFigure(t *testing.T) {
	r := Result{Control: &report.Interval{Value: 1.06, Low: 0.84, High: 2.48, Blocks: 4}, ControlHalf: 0.82}
	want := "The job alone without a limit ran under two names, which differ by +6.0 % (95 %: −16 … +148 %). " +
		"If two ways differ by less than half of the width of this interval, 82.0 %, this measurement cannot tell them apart."
	if got := controlText(r); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if r.Control = nil; controlText(r) != "" {
		t.Error("a control that did not run has a text")
	}
}
