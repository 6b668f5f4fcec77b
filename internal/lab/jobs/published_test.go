package jobs

import (
	"math"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// bareMetal has the 27 cells of the published experiment on a node of 4 CPUs.
// The columns are the number of jobs at once, the limit in thousandths of a
// CPU, and the duration of a job in seconds.
var bareMetal = []struct {
	jobs    int
	limit   unit.MilliCPU
	seconds int
}{
	{1, 200, 2929}, {1, 400, 1748}, {1, 800, 928}, {1, 1000, 729}, {1, 1500, 452}, {1, 2000, 283}, {1, 3000, 72},
	{2, 100, 6638}, {2, 200, 3380}, {2, 400, 1817}, {2, 800, 854}, {2, 1000, 579}, {2, 1500, 151},
	{3, 100, 6612}, {3, 200, 3560}, {3, 400, 1779}, {3, 1000, 228},
	{4, 100, 6665}, {4, 200, 3560}, {4, 400, 1705}, {4, 800, 253},
	{8, 100, 6822}, {8, 200, 3136}, {8, 400, 507},
	{16, 100, 6108}, {16, 200, 1060},
	{32, 100, 2026},
}

func published27() []Job {
	var all []Job
	at := time.Date(2017, 3, 17, 10, 0, 0, 0, time.UTC)
	for _, c := range bareMetal {
		for i := range c.jobs {
			all = append(all, Job{
				Host: "node00", Type: "bm", Concurrency: c.jobs, CPU: c.limit, Memory: 8 << 30, Index: i,
				In: at, Out: at.Add(time.Duration(c.seconds) * time.Second), Precision: time.Second, Source: "source1.mp4",
			})
		}
		at = at.Add(time.Duration(c.seconds+60) * time.Second)
	}
	return all
}

// TestTheLoadOfTheNodeExplainsThePublishedCosts uses the 27 cells. The CPUs
// that all jobs request together must explain the CPU time of a job. Neither
// the limit nor the number of jobs may explain it.
func TestTheLoadOfTheNodeExplainsThePublishedCosts(t *testing.T) {
	waves := Waves(published27())
	if len(waves) != len(bareMetal) {
		t.Fatalf("%d waves, want %d", len(waves), len(bareMetal))
	}
	c := CostsOf(waves)
	if c.Measured {
		t.Error("the cost of published rows is limit × duration, and is called measured")
	}
	if c.Named != "CPUs asked for on the node" || c.Causes[0].Adjusted < 0.99 {
		t.Errorf("named %q, causes %+v: want at least 99 %% by the CPUs asked for", c.Named, c.Causes)
	}
	for _, cause := range c.Causes[1:] {
		if known(cause.Adjusted) > 0.05 {
			t.Errorf("%s explains %.1f %% (adjusted), want next to nothing", cause.Name, 100*cause.Adjusted)
		}
	}
	if !c.HasCliff || c.Cliff.Before != 2 || c.Cliff.After != 3 {
		t.Errorf("cliff %+v, want it between 2 and 3 of 4 CPUs", c.Cliff)
	}
	if factor := c.Cliff.High / c.Cliff.Low; math.Abs(factor-2.5) > 0.2 {
		t.Errorf("the step is a factor of %.2f, want 2.5 within 0.2", factor)
	}
}

// bareMetalMemory has published times of a job that runs alone. The columns are
// the limit in thousandths of a CPU, and the seconds with 1, 2, 4 and 8 GiB of
// memory.
var bareMetalMemory = []struct {
	limit   unit.MilliCPU
	seconds []int
}{
	{800, []int{859, 854, 848}},
	{1000, []int{573, 578, 575, 590}},
	{1500, []int{153, 151, 150, 149}},
}

// TestThePublishedTimesShowNoEffectOfMemory checks a published conclusion, that
// more memory makes a job half a per cent to one per cent faster. At the three
// limits, the times change in different directions, so no effect is shown.
func TestThePublishedTimesShowNoEffectOfMemory(t *testing.T) {
	var all []Job
	at := time.Unix(1e9, 0).UTC()
	for _, row := range bareMetalMemory {
		for i, s := range row.seconds {
			all = append(all, Job{
				Host: "node00", Type: "bm", Concurrency: 1, CPU: row.limit, Memory: unit.Bytes(1<<30) << i,
				In: at, Out: at.Add(time.Duration(s) * time.Second), Precision: time.Second,
			})
			at = at.Add(time.Hour)
		}
	}
	e, ok := MemoryEffectOf(Options(Waves(all)))
	if !ok || e.Verdict != NotShown || e.Conditions != 3 || e.Least != 1<<30 || e.Most != 8<<30 {
		t.Errorf("%+v, %v: want %q from 3 limits", e, ok, NotShown)
	}
	if math.Abs(e.Ratio.Value-0.9966) > 0.0001 || e.Ratio.Low > 0.99 || e.Ratio.High < 1.01 {
		t.Errorf("ratio %.4f (%.4f to %.4f), want 0.9966 with both signs in its interval", e.Ratio.Value, e.Ratio.Low, e.Ratio.High)
	}
	// Here the times fall with more memory at each limit, with little scatter,
	// so there is an effect. This shows that the test above can fail.
	for i := range all {
		if all[i].Memory > 1<<30 {
			all[i].Out = all[i].In.Add(all[i].Duration() / 2)
		}
	}
	if e, _ := MemoryEffectOf(Options(Waves(all))); e.Verdict != Faster {
		t.Errorf("half of the time at each limit is %q", e.Verdict)
	}
	if _, ok := MemoryEffectOf(Options(Waves(published27()))); ok {
		t.Error("a table with one amount of memory has an effect of memory")
	}
}
