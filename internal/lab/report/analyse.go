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

// Order in which modes are shown; others follow by name.
var presentation = []Mode{Exclusive, ExclusiveAA, ExclusiveWarm, Default65, Tenon65, Default, Burstable, Tenon,
	TenonWeight, TenonIdle, TenonSiblings, TenonCoreSched, TenonSCX, TenonVendor, Tenond, Solo}

// A metric is one number of a run; NaN where the run does not have it.
type metric func(Run) float64

func runDelay(r Run) float64   { return known(r.DelayPerRun, r.Timeslices > 0) }
func cpuPercent(r Run) float64 { return r.CPUPercent }

var percentiles = map[string]metric{
	"p50":  func(r Run) float64 { return positive(r.Latency.P50) },
	"p75":  func(r Run) float64 { return positive(r.Latency.P75) },
	"p90":  func(r Run) float64 { return positive(r.Latency.P90) },
	"p99":  func(r Run) float64 { return positive(r.Latency.P99) },
	"p999": func(r Run) float64 { return positive(r.Latency.P999) },
	"max":  func(r Run) float64 { return positive(r.Latency.Max) },
	"mean": func(r Run) float64 { return positive(r.Latency.Mean) },
}

func positive(v float64) float64 { return known(v, v > 0) }

func known(v float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return v
}

// evidence is an experiment with the runs that count: the last valid run of
// each mode in each block (a void run may have been repeated).
type evidence struct {
	Experiment
	used map[Mode]map[int]Run
}

func gather(e Experiment, runs []Run) evidence {
	ev := evidence{e, make(map[Mode]map[int]Run)}
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

// sample collects m of each block in which mode has a valid run.
func (ev evidence) sample(mode Mode, m metric) stat.Sample {
	s := make(stat.Sample)
	for block, r := range ev.used[mode] {
		if v := m(r); !math.IsNaN(v) {
			s[block] = v
		}
	}
	return s
}

func (ev evidence) ratio(num, den Mode, m metric) stat.Estimate {
	return stat.Ratio(ev.sample(num, m), ev.sample(den, m))
}

// runs returns the used runs of mode in the order of their blocks.
func (ev evidence) runs(mode Mode) []Run {
	return slices.SortedFunc(maps.Values(ev.used[mode]), func(a, b Run) int { return cmp.Compare(a.Block, b.Block) })
}

// pooled adds the histograms of the used runs of mode: percentiles of several runs
// come from added counts, never from averaged percentiles. Nil without any.
func (ev evidence) pooled(mode Mode) *hdrhistogram.Histogram {
	var total *hdrhistogram.Histogram
	for _, r := range ev.runs(mode) {
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

// idleCapacity is the frame rate that the CPU left idle by the service in a
// mode without batch work would give in each block, at the rate that a CPU
// gives to BE alone: in the block's own solo run, because a shared machine is
// not equally fast all the time, or in the calibration where the experiment
// has no such mode.
func (ev evidence) idleCapacity(without Mode) stat.Sample {
	solo := ev.sample(Solo, func(r Run) float64 { return positive(r.FramesPerS / r.BECPU) })
	calibrated := ev.SoloFramesPerSecond / ev.SoloCPU
	return ev.sample(without, func(r Run) float64 {
		perCPU := calibrated
		if ev.asked(Solo) {
			perCPU = solo[r.Block] // 0 without a valid run: the block does not count
		}
		if math.IsInf(perCPU, 0) {
			perCPU = 0
		}
		return positive((float64(ev.TestedCPUs.Len()) - r.LSCPU) * perCPU)
	})
}

// Analyse turns the runs of an experiment into its result. It is pure and
// deterministic: the same runs give the same result, bit for bit.
func Analyse(e Experiment, runs []Run) Result {
	ev := gather(e, runs)
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
		if mode == Solo { // no service, nothing to compare
			continue
		}
		if mode != Exclusive && ev.used[Exclusive] != nil {
			r.Ratios[mode] = ev.ratios(mode, Exclusive)
		}
		if mode != ExclusiveWarm && ev.used[ExclusiveWarm] != nil {
			r.RatiosWarm[mode] = ev.ratios(mode, ExclusiveWarm)
		}
		r.RunDelay[mode] = DelayRatio{
			ToExclusive:     intervalOf(ev.ratio(mode, Exclusive, runDelay)),
			ToExclusiveWarm: intervalOf(ev.ratio(mode, ExclusiveWarm, runDelay)),
		}
	}
	r.Blocks = len(blocks)
	r.Order = slices.SortedFunc(maps.Keys(r.Modes), func(a, b Mode) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	for _, run := range runs {
		if len(run.Void) > 0 {
			r.VoidRuns = append(r.VoidRuns, VoidRun{run.Index, run.Block, run.Mode, run.Void})
		}
	}
	resolution := ev.resolution()
	if ev.used[ExclusiveAA] != nil && ev.used[Exclusive] != nil {
		r.Control = &Control{
			P99: intervalOf(resolution.Control), RunDelay: intervalOf(ev.ratio(ExclusiveAA, Exclusive, runDelay)),
			HalfWidth: Number(resolution.HalfWidth), Bias: Number(resolution.Bias), Resolves: resolution.Fine,
		}
	}
	switch {
	case e.isMemory():
		r.Claims = append(r.Claims, ev.memoryClaims(resolution)...)
	case e.Kind == KindKernelQOS:
		r.Claims = append(r.Claims, ev.rungClaims(resolution)...)
	default:
		r.Claims = append(r.Claims, ev.claims(resolution)...)
		r.Claims = append(r.Claims, ev.rungClaims(resolution)...)
	}
	r.Warnings = append(r.Warnings, ev.warnings(r, runs)...)
	return r
}

// resolution judges the A/A control.
func (ev evidence) resolution() stat.Resolution {
	return stat.ResolutionOf(ev.ratio(ExclusiveAA, Exclusive, percentiles["p99"]), ev.Margin)
}

func rank(m Mode) int {
	if i := slices.Index(presentation, m); i >= 0 {
		return i
	}
	return len(presentation)
}

func (ev evidence) ratios(mode, baseline Mode) Ratios {
	out := make(Ratios)
	for name, m := range percentiles {
		out[name] = intervalOf(ev.ratio(mode, baseline, m))
	}
	return out
}

func (ev evidence) summary(mode Mode, runs []Run) ModeResult {
	median := func(m metric) Number { return Number(stat.Median(ev.sample(mode, m))) }
	share := func(part, whole float64) float64 { return known(part/whole, whole > 0) }
	m := ModeResult{
		Runs: len(ev.used[mode]),
		P50:  median(percentiles["p50"]), P75: median(percentiles["p75"]), P90: median(percentiles["p90"]),
		P99: median(percentiles["p99"]), P999: median(percentiles["p999"]),
		Max: median(percentiles["max"]), Mean: median(percentiles["mean"]),

		CPUPercent:     median(cpuPercent),
		LSCPU:          median(func(r Run) float64 { return r.LSCPU }),
		BECPU:          median(func(r Run) float64 { return r.BECPU }),
		OtherCPU:       median(func(r Run) float64 { return r.OtherCPU }),
		NodeMetricsCPU: median(func(r Run) float64 { return positive(r.NodeMetricsCPU) }),
		FramesPerS:     median(func(r Run) float64 { return r.FramesPerS }),
		FramesPerCPU:   median(func(r Run) float64 { return share(r.FramesPerS, r.BECPU) }),
		DelayPerRun:    median(runDelay),
		LSThrottled:    median(func(r Run) float64 { return share(r.LSThrottled.Seconds(), r.Length.Seconds()) }),
		BEThrottled:    median(func(r Run) float64 { return share(r.BEThrottled.Seconds(), r.Length.Seconds()) }),
		PSICPU:         median(func(r Run) float64 { return known(r.PSICPU, r.PSICPU >= 0) }),
		Steal:          median(func(r Run) float64 { return r.StealRatio }),
		ClientLag:      median(func(r Run) float64 { return r.ClientLag.P99 }),
		ClientCPU:      median(func(r Run) float64 { return r.ClientCPU }),
	}
	m.Goodput = Number(stat.Ratio(ev.sample(mode, func(r Run) float64 { return positive(r.FramesPerS) }), ev.idleCapacity(Exclusive)).Value)
	if ev.isMemory() {
		m.Memory = ev.memorySummary(mode)
	}
	m.Traced = ev.tracedSummary(mode)
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

// warnings lists what a reader should know before trusting a number.
func (ev evidence) warnings(r Result, runs []Run) []string {
	var out []string
	if ev.Machine.Emulated {
		out = append(out, "this machine is emulated by a program: what was run and written is real, but how long requests took means nothing")
	}
	if r.Blocks < stat.MinBlocks {
		out = append(out, fmt.Sprintf("only %s: intervals from fewer than %d rest on assumptions that so few cannot check", plural(r.Blocks, "block", "blocks"), stat.MinBlocks))
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
				out = append(out, fmt.Sprintf("claim %s, %s: %s left out, because a value was not positive", c.Name, what, plural(n, "block", "blocks")))
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
// expected to change: the stop rule of --until-resolved. It looks at bounds of
// 99.5 %, so that looking often does not buy claims (stat.StopLevel). Without
// a single claim nothing is resolved.
func Resolved(r Result) bool {
	return len(r.Claims) > 0 && !slices.ContainsFunc(r.Claims, func(c Claim) bool { return !c.Final })
}
