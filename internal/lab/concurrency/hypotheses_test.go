package concurrency

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A sketch describes the jobs of an invented cell. Each of them runs for ten
// seconds.
type sketch struct {
	strategy string
	jobs     int
	limit    unit.MilliCPU
	cpus     []float64 // CPUs that a job uses on average, for each block
	periods  int64     // of the quota
	held     int64     // periods in which the quota stopped the job
	ghz      float64   // 0: the machine counts no cycles
}

// verdicts analyses an invented experiment, and returns the finding about a cause.
func verdicts(t *testing.T, on Node, cause cause, cells []sketch) finding {
	t.Helper()
	at := time.Unix(1e9, 0).UTC()
	var all []jobs.Job
	run, blocks := 0, 0
	for _, c := range cells {
		blocks = max(blocks, len(c.cpus))
		for block, cpus := range c.cpus {
			run++
			for i := range c.jobs {
				j := jobs.Job{Host: "a", Type: c.strategy, Concurrency: c.jobs, CPU: c.limit, Index: i, In: at, Out: at.Add(10 * time.Second), Precision: time.Nanosecond}
				j.Extra = jobs.Extra{
					Strategy: c.strategy, Block: block + 1, Run: run, CPUSeconds: node.Some(10 * cpus),
					Periods: node.Some(c.periods), ThrottledPeriods: node.Some(c.held),
				}
				if c.ghz > 0 {
					j.Extra.Cycles = node.Some(c.ghz * 1e9 * 10 * cpus)
				}
				all = append(all, j)
			}
			at = at.Add(time.Hour)
		}
	}
	for _, h := range Analyse(Experiment{Node: on, Header: report.Header{Blocks: blocks}}, all).findings {
		if h.cause == cause {
			return h
		}
	}
	t.Fatalf("there is no finding about %q", causeTexts[cause])
	return finding{}
}

// always returns the same number of CPUs for each of n blocks.
func always(cpus float64, n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = cpus
	}
	return all
}

// A verdictCase has the verdict and what decides it: the reason why nothing was
// compared, or a part of the figure.
type verdictCase struct {
	cells   []sketch
	verdict string
	decides any // a lack, or a text
}

func checkVerdicts(t *testing.T, on Node, cause cause, cases map[string]verdictCase) {
	t.Helper()
	for name, c := range cases {
		h := verdicts(t, on, cause, c.cells)
		why, lacks := c.decides.(lack)
		figure, _ := c.decides.(string)
		if h.verdict != c.verdict || h.lack != why || !lacks && !strings.Contains(h.figure(), figure) {
			t.Errorf("%s: %+v\nwant: %s, %v", name, h.hypothesis(), c.verdict, c.decides)
		}
	}
}

func TestAQuotaIsLostOnlyInThePeriodsThatItStops(t *testing.T) {
	checkVerdicts(t, Node{CPUs: 4, Cores: 4}, quotaLoss, map[string]verdictCase{
		// The job has two threads in 60 periods and one in 40. It loses nothing.
		"one thread in the other periods": {[]sketch{{"quota", 1, 2000, always(1.6, 4), 100, 60, 0}}, unclear, "jobs used 67 to 100 % of it (95 % interval over 4 blocks, mean of 1 cell)"},
		"stopped in each period":          {[]sketch{{"quota", 1, 500, always(0.4, 4), 100, 100, 0}}, supported, "jobs used 80 to 80 % of it"},
		"used in each period":             {[]sketch{{"quota", 1, 500, always(0.495, 4), 100, 100, 0}}, ruledOut, "jobs used 99 to 99 % of it"},
		"used in most periods":            {[]sketch{{"quota", 1, 1000, always(1, 4), 100, 90, 0}}, ruledOut, "jobs used 100 to 100 % of it"},
		"two cells":                       {[]sketch{{"quota", 1, 500, always(0.5, 4), 100, 100, 0}, {"quota", 2, 500, always(0.49, 4), 100, 100, 0}}, ruledOut, "jobs used 99 to 99 % of it (95 % interval over 4 blocks, mean of 2 cells)"},
		// The kernel counts no periods while the job sleeps.
		"asleep half of the time":    {[]sketch{{"quota", 1, 1000, always(0.5, 4), 50, 50, 0}}, unclear, "jobs used 0 to 100 % of it"},
		"periods of 10 ms":           {[]sketch{{"quota", 1, 1000, always(1, 4), 1000, 1000, 0}}, ruledOut, "jobs used 100 to 100 % of it"},
		"blocks that differ":         {[]sketch{{"quota", 1, 500, []float64{0.5, 0.4, 0.5, 0.42}, 100, 100, 0}}, unclear, "of it (95 % interval over 4 blocks"},
		"one block":                  {[]sketch{{"quota", 1, 500, always(0.4, 1), 100, 100, 0}}, unclear, oneBlock},
		"stopped in few periods":     {[]sketch{{"quota", 1, 500, always(0.4, 4), 100, 40, 0}}, unclear, neverHeld},
		"stopped by another limiter": {[]sketch{{"tenon", 1, 500, always(0.4, 4), 100, 100, 0}}, unclear, neverHeld},
	})
}

func TestTheClockIsComparedBetweenAFullAndAHalfIdleMachine(t *testing.T) {
	cell := func(jobs int, cpus, ghz float64) sketch {
		return sketch{strategy: "unbounded", jobs: jobs, cpus: always(cpus, 4), ghz: ghz}
	}
	checkVerdicts(t, Node{CPUs: 4, Cores: 4}, slowClock, map[string]verdictCase{
		"one cell":              {[]sketch{cell(1, 1, 3.1)}, unclear, noPairOfCells},
		"full cells only":       {[]sketch{cell(4, 0.99, 3.1), cell(5, 0.8, 3.1)}, unclear, noPairOfCells},
		"neither full nor idle": {[]sketch{cell(1, 1, 2), cell(3, 1, 3.1)}, unclear, noPairOfCells},
		"a clock that rises":    {[]sketch{cell(1, 1, 2), cell(4, 0.99, 3)}, supported, "With at most 55 % of the CPUs busy, jobs ran at 2.00 GHz; with at least 90 % busy, the clock was 1.50 (1.50 to 1.50) times as fast."},
		"the same clock":        {[]sketch{cell(2, 1, 3.1), cell(4, 0.95, 3.1)}, ruledOut, "jobs ran at 3.10 GHz; with at least 90 % busy, the clock was 1.00 (1.00 to 1.00) times as fast."},
		"a clock that falls":    {[]sketch{cell(1, 1, 3), cell(4, 0.99, 2)}, ruledOut, "the clock was 0.67 (0.67 to 0.67) times as fast."},
		"one block":             {[]sketch{{strategy: "unbounded", jobs: 1, cpus: always(1, 1), ghz: 2}, {strategy: "unbounded", jobs: 4, cpus: always(1, 1), ghz: 3}}, unclear, "the clock was 1.50 times as fast."},
		"no cycles":             {[]sketch{cell(1, 1, 0), cell(4, 0.99, 0)}, unclear, noCycles},
	})
}

func TestTheVerdictOnSiblingsBelongsToItsFigure(t *testing.T) {
	// pair returns the cells of one limit: pinned, and under a quota with these
	// multiples of the CPU time.
	pair := func(limit unit.MilliCPU, ratios ...float64) []sketch {
		used := make([]float64, len(ratios))
		for i, r := range ratios {
			used[i] = 0.4 * r
		}
		return []sketch{{strategy: "pinned", jobs: 1, limit: limit, cpus: always(0.4, len(ratios))}, {strategy: "quota", jobs: 1, limit: limit, cpus: used, periods: 100}}
	}
	both := func(a, b []sketch) []sketch { return append(a, b...) }
	higher, near, equal := []float64{1.28, 1.32, 1.3, 1.3}, []float64{0.98, 1.12, 1.03, 1.08}, []float64{1, 1.01, 0.99, 1}
	checkVerdicts(t, Node{CPUs: 4, Cores: 2}, busySiblings, map[string]verdictCase{
		"higher with one limit":    {both(pair(500, higher...), pair(1000, near...)), supported, "is 1.30 (1.27 to 1.33) with limit 0.5, 1.05 ("},
		"higher with the other":    {both(pair(500, near...), pair(1000, higher...)), supported, "with limit 0.5, 1.30 (1.27 to 1.33) with limit 1. Stops by the quota, and moves between CPUs, would look the same."},
		"not decided with a limit": {both(pair(500, equal...), pair(1000, near...)), unclear, "with limit 0.5, 1.05 ("},
		"not decided":              {pair(1000, near...), unclear, "is 1.05 ("},
		"equal":                    {both(pair(500, equal...), pair(1000, equal...)), ruledOut, "with limit 1."},
		"one block":                {pair(1000, 1.3), unclear, notPinned},
	})
	if h := verdicts(t, Node{CPUs: 4, Cores: 4}, busySiblings, pair(1000, higher...)); h.verdict != unclear || h.lack != noSiblings {
		t.Errorf("%+v", h)
	}
}
