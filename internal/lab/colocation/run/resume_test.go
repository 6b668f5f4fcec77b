package run

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/report"
)

// TestWhatCannotGoOnIsRefused gives records of experiments that must not go on.
func TestWhatCannotGoOnIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*colocation.Experiment)
		want   string
	}{
		"a stopped one":   {func(e *colocation.Experiment) { e.Ended = report.EndHand }, ""},
		"a killed one":    {func(*colocation.Experiment) {}, ""},
		"one that ended":  {func(e *colocation.Experiment) { e.Ended = report.EndPlanned }, "has ended as planned"},
		"blocks":          {func(e *colocation.Experiment) { e.Design = "" }, "only an experiment with --design switch can go on"},
		"another version": {func(e *colocation.Experiment) { e.Version = "v9" }, "version v9 began the experiment, this is v1"},
		"other modes":     {func(e *colocation.Experiment) { e.Modes = e.Modes[1:] }, "other modes, lengths, looks or another seed"},
		"other looks":     {func(e *colocation.Experiment) { e.Looks = []int{4, 8, 12} }, "other modes, lengths, looks or another seed"},
	} {
		setting := labtest.Setting(t)
		setting.Blocks, setting.Version = 0, "v1"
		c1, err := Config{Setting: setting}.WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		e := colocation.Experiment{Design: c1.Design, Turn: c1.Turn}
		e.Schema, e.Version, e.Modes, e.Seed, e.Duration, e.Looks = report.Schema, "v1", c1.Modes, c1.Seed, c1.Duration, []int{12}
		c.change(&e)
		runs := []colocation.Run{{Run: report.Run{Index: 1, Block: 1}}, {Run: report.Run{Index: 2, Block: 2}}}
		for i := range runs {
			runs[i].Mode, runs[i].Length = report.Switched, time.Minute
		}
		if name == "a killed one" {
			runs[1].Discard(report.Disturbed, "steal")
		}
		err = report.Create(c1.Out, &e)
		for i := range runs {
			err = errors.Join(err, report.SaveRun(c1.Out, &runs[i]))
		}
		if err != nil {
			t.Fatal(err)
		}
		c1.Resume = true
		s, err := readStopped(c1)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", name, err, c.want)
			}
			continue
		}
		if want := 3 - len(runs[1].Void); err != nil || len(s.runs) != 2 || s.next() != want {
			t.Errorf("%s: %d runs, next start %d, error %v, want %d", name, len(s.runs), s.next(), err, want)
		}
	}
}

// TestAStoppedExperimentGoesOn interrupts an experiment after its first start. The rest
// has the same load, and the experiment then ends as planned.
func TestAStoppedExperimentGoesOn(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t)
	setting := labtest.Setting(t)
	setting.Blocks = 0
	t.Cleanup(func() { labtest.NothingLeft(t, setting) })
	c := frozenExperiment(setting)
	c.Starts, c.StartLength = 2, 4*time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Notices = &labtest.Trigger{Word: "start 1 switched", Act: cancel}
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first part: %v", err)
	}
	first, runs, err := report.Load[colocation.Experiment, colocation.Run](c.Out)
	if err != nil || len(runs) != 1 || first.Ended != report.EndHand {
		t.Fatalf("the first part has %d starts and ended by %q, error %v", len(runs), first.Ended, err)
	}
	c.Notices, c.Resume = nil, true
	o, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	// A busy machine makes the first start void, which then runs again.
	if err != nil || len(runs) < 2 || runs[len(runs)-1].Block != 2 || e.Ended != report.EndPlanned {
		t.Errorf("the whole has %d starts and ended by %q, error %v", len(runs), e.Ended, err)
	}
	if e.OfferedRate != first.OfferedRate || !e.Started.Equal(first.Started) || !strings.Contains(strings.Join(e.Caveats, "\n"), ", and went on at ") {
		t.Errorf("rate %v, was %v; caveats %q", e.OfferedRate, first.OfferedRate, e.Caveats)
	}
	if o.Dir != filepath.Clean(c.Out) {
		t.Errorf("results in %s, want %s", o.Dir, c.Out)
	}
	c.Resume = true
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "has ended as planned") {
		t.Errorf("once more: %v", err)
	}
}
