package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tenon.sh/tenon/internal/lab/stat"
)

// A Metric returns one number of a run, or NaN if the run does not have it.
type Metric func(Run) float64

// RunDelay returns the service's mean wait for a CPU per timeslice, in µs.
func RunDelay(r Run) float64 { return Known(r.DelayPerRun, r.Timeslices > 0) }

// CPUPercent returns the use of the tested CPUs in percent.
func CPUPercent(r Run) float64 { return r.CPUPercent }

// Percentiles are the metrics of the latency in µs, by their key in
// result.json.
var Percentiles = map[string]Metric{
	"p50":  func(r Run) float64 { return Positive(r.Latency.P50) },
	"p75":  func(r Run) float64 { return Positive(r.Latency.P75) },
	"p90":  func(r Run) float64 { return Positive(r.Latency.P90) },
	"p99":  func(r Run) float64 { return Positive(r.Latency.P99) },
	"p999": func(r Run) float64 { return Positive(r.Latency.P999) },
	"max":  func(r Run) float64 { return Positive(r.Latency.Max) },
	"mean": func(r Run) float64 { return Positive(r.Latency.Mean) },
}

// Positive returns v, or NaN if v is not above 0.
func Positive(v float64) float64 { return Known(v, v > 0) }

// Known returns v if ok, and otherwise NaN.
func Known(v float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return v
}

// Evidence is an experiment with the runs that its analysis uses: the last
// valid run of each mode in each block (a void run may have been repeated).
type Evidence struct {
	Experiment
	used map[Mode]map[int]Run
}

// Gather selects the runs that the analysis uses.
func Gather(e Experiment, runs []Run) Evidence {
	ev := Evidence{e, make(map[Mode]map[int]Run)}
	for _, r := range runs {
		if len(r.Void) > 0 {
			continue
		}
		if ev.used[r.Mode] == nil {
			ev.used[r.Mode] = make(map[int]Run)
		}
		ev.used[r.Mode][r.Block] = r
	}
	return ev
}

// Sample returns m of each block in which mode has a valid run.
func (ev Evidence) Sample(mode Mode, m Metric) stat.Sample {
	s := make(stat.Sample)
	for block, r := range ev.used[mode] {
		if v := m(r); !math.IsNaN(v) {
			s[block] = v
		}
	}
	return s
}

// Ratio compares two modes within blocks.
func (ev Evidence) Ratio(num, den Mode, m Metric) stat.Estimate {
	return stat.Ratio(ev.Sample(num, m), ev.Sample(den, m))
}

// Runs returns the used runs of mode in the order of their blocks.
func (ev Evidence) Runs(mode Mode) []Run {
	return slices.SortedFunc(maps.Values(ev.used[mode]), func(a, b Run) int { return cmp.Compare(a.Block, b.Block) })
}

// pooled returns the sum of the histograms of the used runs of mode, or nil
// without any. Percentiles of several runs come from added counts and not from
// averaged percentiles.
func (ev Evidence) pooled(mode Mode) *hdrhistogram.Histogram {
	var total *hdrhistogram.Histogram
	for _, r := range ev.Runs(mode) {
		switch {
		case r.Histogram == nil:
		case total == nil:
			total = r.Histogram.Clone()
		default:
			total.Merge(r.Histogram)
		}
	}
	return total
}

// IdleCapacity is, for each block, the frame rate that BE could reach on the
// CPU that the service leaves idle in the mode without. It is that idle CPU
// times the frame rate per CPU of BE alone. The latter comes from the block's
// solo run, because a shared machine is not equally fast all the time; if the
// experiment has no solo mode, it comes from the calibration.
func (ev Evidence) IdleCapacity(without Mode) stat.Sample {
	solo := ev.Sample(Solo, func(r Run) float64 { return Positive(r.FramesPerS / r.BECPU) })
	calibrated := ev.SoloFramesPerSecond / ev.SoloCPU
	return ev.Sample(without, func(r Run) float64 {
		perCPU := calibrated
		if ev.Asked(Solo) {
			perCPU = solo[r.Block] // 0 without a valid run, which excludes the block
		}
		if math.IsInf(perCPU, 0) {
			perCPU = 0
		}
		return Positive((float64(ev.TestedCPUs.Len()) - r.LSCPU) * perCPU)
	})
}

// Analyse computes the result of a study from the runs of an experiment. It is
// pure and deterministic: the same runs give the same result, bit for bit.
func Analyse(e Experiment, runs []Run, s Study) Analysis {
	ev := Gather(e, runs)
	r := Result{
		Schema: Schema, Experiment: e,
		Modes: make(map[Mode]ModeResult), Ratios: make(map[Mode]Ratios), RatiosWarm: make(map[Mode]Ratios),
		RunDelay: make(map[Mode]DelayRatio), Claims: []Claim{}, VoidRuns: []VoidRun{}, Warnings: []string{},
	}
	blocks := make(map[int]bool)
	for mode, used := range ev.used {
		for block := range used {
			blocks[block] = true
		}
		r.Modes[mode] = ev.summary(mode, runs)
		if mode == Solo { // without a service there is nothing to compare
			continue
		}
		if mode != Exclusive && ev.used[Exclusive] != nil {
			r.Ratios[mode] = ev.ratios(mode, Exclusive)
		}
		if mode != ExclusiveWarm && ev.used[ExclusiveWarm] != nil {
			r.RatiosWarm[mode] = ev.ratios(mode, ExclusiveWarm)
		}
		r.RunDelay[mode] = DelayRatio{
			ToExclusive:     IntervalOf(ev.Ratio(mode, Exclusive, RunDelay)),
			ToExclusiveWarm: IntervalOf(ev.Ratio(mode, ExclusiveWarm, RunDelay)),
		}
	}
	r.Blocks = len(blocks)
	r.Order = slices.SortedFunc(maps.Keys(r.Modes), func(a, b Mode) int { return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a, b)) })
	for _, run := range runs {
		if len(run.Void) > 0 {
			r.VoidRuns = append(r.VoidRuns, VoidRun{run.Index, run.Block, run.Mode, run.Void})
		}
	}
	resolution := ev.Resolution()
	if ev.used[ExclusiveAA] != nil && ev.used[Exclusive] != nil {
		r.Control = &Control{
			P99: IntervalOf(resolution.Control), RunDelay: IntervalOf(ev.Ratio(ExclusiveAA, Exclusive, RunDelay)),
			HalfWidth: Number(resolution.HalfWidth), Bias: Number(resolution.Bias), Resolves: resolution.Fine,
		}
	}
	r.Claims = append(r.Claims, s.claims(ev, resolution)...)
	r.Warnings = append(r.Warnings, ev.warnings(r, runs)...)
	return Analysis{Base: r, study: s, evidence: ev, all: len(runs), doc: r}
}

// Resolution judges the A/A control.
func (ev Evidence) Resolution() stat.Resolution {
	return stat.ResolutionOf(ev.Ratio(ExclusiveAA, Exclusive, Percentiles["p99"]), ev.Margin)
}

func (ev Evidence) ratios(mode, baseline Mode) Ratios {
	out := make(Ratios)
	for name, m := range Percentiles {
		out[name] = IntervalOf(ev.Ratio(mode, baseline, m))
	}
	return out
}

func (ev Evidence) summary(mode Mode, runs []Run) ModeResult {
	median := func(m Metric) Number { return Number(stat.Median(ev.Sample(mode, m))) }
	share := func(part, whole float64) float64 { return Known(part/whole, whole > 0) }
	m := ModeResult{
		Runs: len(ev.used[mode]),
		P50:  median(Percentiles["p50"]), P75: median(Percentiles["p75"]), P90: median(Percentiles["p90"]),
		P99: median(Percentiles["p99"]), P999: median(Percentiles["p999"]),
		Max: median(Percentiles["max"]), Mean: median(Percentiles["mean"]),

		CPUPercent:     median(CPUPercent),
		LSCPU:          median(func(r Run) float64 { return r.LSCPU }),
		BECPU:          median(func(r Run) float64 { return r.BECPU }),
		OtherCPU:       median(func(r Run) float64 { return r.OtherCPU }),
		NodeMetricsCPU: median(func(r Run) float64 { return Positive(r.NodeMetricsCPU) }),
		FramesPerS:     median(func(r Run) float64 { return r.FramesPerS }),
		FramesPerCPU:   median(func(r Run) float64 { return share(r.FramesPerS, r.BECPU) }),
		DelayPerRun:    median(RunDelay),
		LSThrottled:    median(func(r Run) float64 { return share(r.LSThrottled.Seconds(), r.Length.Seconds()) }),
		BEThrottled:    median(func(r Run) float64 { return share(r.BEThrottled.Seconds(), r.Length.Seconds()) }),
		PSICPU:         median(func(r Run) float64 { return Known(r.PSICPU, r.PSICPU >= 0) }),
		Steal:          median(func(r Run) float64 { return r.StealRatio }),
		ClientLag:      median(func(r Run) float64 { return r.ClientLag.P99 }),
		ClientCPU:      median(func(r Run) float64 { return r.ClientCPU }),
	}
	m.Goodput = Number(stat.Ratio(ev.Sample(mode, func(r Run) float64 { return Positive(r.FramesPerS) }), ev.IdleCapacity(Exclusive)).Value)
	for _, r := range ev.used[mode] {
		m.Requests += r.Requests
		for kind, n := range r.Errors {
			if m.Errors == nil {
				m.Errors = make(map[string]int)
			}
			m.Errors[kind] += n
		}
	}
	for _, r := range runs {
		if r.Mode == mode && len(r.Void) > 0 {
			m.Void++
		}
	}
	if h := ev.pooled(mode); h != nil && h.TotalCount() > 0 {
		all := LatencyOf(h)
		m.Pooled = &all
	}
	return m
}

// warnings returns the notes that a reader needs before trusting a number.
func (ev Evidence) warnings(r Result, runs []Run) []string {
	var out []string
	if ev.Machine.Emulated {
		out = append(out, "this machine is emulated by a program: what was run and written is real, but how long requests took means nothing")
	}
	if r.Blocks < stat.MinBlocks {
		out = append(out, fmt.Sprintf("only %s: intervals from fewer than %d rest on assumptions that so few cannot check", Plural(r.Blocks, "block", "blocks"), stat.MinBlocks))
	}
	for _, mode := range r.Order {
		m := r.Modes[mode]
		if m.Void*5 > m.Runs+m.Void {
			out = append(out, fmt.Sprintf("%s: %d of %d runs are void; what disturbs the machine may not disturb all modes alike", mode, m.Void, m.Runs+m.Void))
		}
		if len(m.Errors) > 0 {
			out = append(out, fmt.Sprintf("%s: requests failed: %s", mode, countList(m.Errors)))
		}
	}
	for _, c := range r.Claims {
		for _, what := range slices.Sorted(maps.Keys(c.Numbers)) {
			if n := c.Numbers[what].Dropped; n > 0 {
				out = append(out, fmt.Sprintf("claim %s, %s: %s left out, because a value was not positive", c.Name, what, Plural(n, "block", "blocks")))
			}
		}
	}
	for _, mode := range ev.Modes {
		if _, ok := r.Modes[mode]; !ok {
			out = append(out, fmt.Sprintf("%s: no valid run", mode))
		}
	}
	counts := make(map[string]int)
	for _, run := range runs {
		for _, w := range run.Warnings {
			counts[w]++
		}
	}
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s (%d of %d runs)", w, counts[w], len(runs)))
	}
	return out
}

// Resolved reports whether every claim has a verdict that more blocks are not
// expected to change. It is the stop rule of --until-resolved. It uses bounds
// of 99.5 %, so that repeated looks do not raise the error rate
// (stat.StopLevel). Without claims it returns false.
func (a Analysis) Resolved() bool {
	return len(a.Base.Claims) > 0 && !slices.ContainsFunc(a.Base.Claims, func(c Claim) bool { return !c.Final })
}
