package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// A Metric returns one number of a run, or NaN if the run lacks it.
type Metric func(Run) float64

// RunDelay returns the mean time that the service waited for a CPU before a
// timeslice, in µs.
func RunDelay(r Run) float64 { return KnownOrNaN(r.DelayPerRun, r.Timeslices > 0) }

// Waiting returns how long the service's threads waited for a CPU, in µs per
// second. Unlike the wait per timeslice, it does not depend on the number of
// timeslices, which differs between modes.
func Waiting(r Run) float64 {
	return KnownOrNaN(float64(r.RunDelay)/float64(time.Microsecond)/r.Length.Seconds(), r.Timeslices > 0 && r.Length > 0)
}

// CPUPercent returns the use of the tested CPUs in percent.
func CPUPercent(r Run) float64 { return r.CPUPercent }

// Percentiles are the latency metrics in µs. The keys are the same as in result.json.
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
func Positive(v float64) float64 { return KnownOrNaN(v, v > 0) }

// KnownOrNaN returns v if ok is set, and NaN otherwise.
func KnownOrNaN(v float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return v
}

// Evidence is an experiment with the runs that its analysis uses. It uses the last
// valid run of each mode and block, because void runs may have been repeated.
type Evidence struct {
	Experiment
	Rule   paired.Rule // by which claims are judged
	Blocks int         // number of blocks with at least one valid run
	used   map[Mode]map[int]Run
	all    []Run // also the void ones
}

// Gather selects the runs that the analysis uses.
func Gather(e Experiment, runs []Run) Evidence {
	ev := Evidence{Experiment: e, used: make(map[Mode]map[int]Run), all: runs}
	blocks := make(map[int]bool)
	for _, r := range runs {
		if len(r.Void) > 0 {
			continue
		}
		if ev.used[r.Mode] == nil {
			ev.used[r.Mode] = make(map[int]Run)
		}
		ev.used[r.Mode][r.Block] = r
		blocks[r.Block] = true
	}
	ev.Blocks = len(blocks)
	ev.Rule = e.Rule(ev.Blocks)
	return ev
}

// Sample returns the metric m of each block in which the mode has a valid run.
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
	return stat.Ratio(ev.Sample(num, m), ev.Sample(den, m), ev.Rule)
}

// Runs returns the used runs of mode in the order of their blocks.
func (ev Evidence) Runs(mode Mode) []Run {
	return slices.SortedFunc(maps.Values(ev.used[mode]), func(a, b Run) int { return cmp.Compare(a.Block, b.Block) })
}

// poolHistograms returns the sum of the histograms of a mode, over the runs
// that the analysis uses. It returns nil if there are none. Percentiles of
// several runs are computed from added counts, because the mean of percentiles
// is not a percentile.
func (ev Evidence) poolHistograms(mode Mode) *hdrhistogram.Histogram {
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

// IdleCapacity returns, for each block, the frame rate that BE could reach on the
// CPU that the service leaves idle in the given mode. This rate is the idle CPU
// multiplied by the frames that BE makes per CPU when it runs alone. The frames
// per CPU come from the solo run of the block, because a shared machine is not
// always equally fast. Without mode solo, they come from the calibration.
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
		RunDelay: make(map[Mode]DelayRatio), Waiting: make(map[Mode]DelayRatio), Claims: []Claim{}, VoidRuns: []VoidRun{}, Warnings: []string{},
	}
	for mode := range ev.used {
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
			ToExclusive:     ev.Ratio(mode, Exclusive, RunDelay),
			ToExclusiveWarm: ev.Ratio(mode, ExclusiveWarm, RunDelay),
		}
		r.Waiting[mode] = DelayRatio{
			ToExclusive:     ev.Ratio(mode, Exclusive, Waiting),
			ToExclusiveWarm: ev.Ratio(mode, ExclusiveWarm, Waiting),
		}
	}
	r.Blocks = ev.Blocks
	r.Order = slices.SortedFunc(maps.Keys(r.Modes), func(a, b Mode) int { return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a, b)) })
	for _, run := range runs {
		if len(run.Void) > 0 {
			r.VoidRuns = append(r.VoidRuns, VoidRun{run.Index, run.Block, run.Mode, run.Void})
		}
	}
	resolution := ev.Resolution(P99)
	if ev.used[ExclusiveAA] != nil && ev.used[Exclusive] != nil {
		r.Control = &Control{
			P99: resolution.Control, RunDelay: ev.Ratio(ExclusiveAA, Exclusive, RunDelay),
			HalfWidth: Number(resolution.HalfWidth), Bias: Number(resolution.Bias), Resolves: resolution.Fine,
			Metrics: make(map[string]Resolved),
		}
		for _, m := range controlled {
			c := ev.Resolution(m)
			r.Control.Metrics[m.Key] = Resolved{c.Control, Number(c.HalfWidth), Number(c.Bias), c.Fine}
		}
	}
	r.Claims = append(r.Claims, s.claims(ev)...)
	first := s.claims(ev.FirstTries())
	for i := range r.Claims {
		r.Claims[i] = ev.withVoidRuns(r.Claims[i], first)
		c := &r.Claims[i]
		c.Final = c.Final || ev.verdictsValid() && c.Verdict != stat.Undecided && c.Verdict != stat.Refused
	}
	r.Warnings = append(r.Warnings, ev.warnings(r, runs)...)
	return Analysis{Base: r, study: s, evidence: ev, all: len(runs), doc: r}
}

// verdictsValid reports whether verdicts are valid now. They are valid after an
// experiment that ended at a time that did not depend on its results. While an
// experiment runs, they are valid at a planned look.
func (ev Evidence) verdictsValid() bool {
	if len(ev.Looks) == 0 {
		return false
	}
	return ev.Ended.Planned() || ev.Ended == "" && ev.Rule.IsLook(ev.Blocks)
}

// Resolution judges the A/A control (exclusive-aa to exclusive) for one measure.
func (ev Evidence) Resolution(m Measure) stat.Resolution {
	return stat.ResolutionOf(ev.Ratio(ExclusiveAA, Exclusive, m.Of), m.MarginOf(ev.Experiment))
}

func (ev Evidence) ratios(mode, baseline Mode) Ratios {
	out := make(Ratios)
	for name, m := range Percentiles {
		out[name] = ev.Ratio(mode, baseline, m)
	}
	return out
}

func (ev Evidence) summary(mode Mode, runs []Run) ModeResult {
	median := func(m Metric) Number { return Number(stat.Median(ev.Sample(mode, m))) }
	share := func(part, whole float64) float64 { return KnownOrNaN(part/whole, whole > 0) }
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
		Waiting:        median(Waiting),
		LSThrottled:    median(func(r Run) float64 { return share(r.LSThrottled.Seconds(), r.Length.Seconds()) }),
		BEThrottled:    median(func(r Run) float64 { return share(r.BEThrottled.Seconds(), r.Length.Seconds()) }),
		PSICPU:         median(func(r Run) float64 { return KnownOrNaN(r.PSICPU, r.PSICPU >= 0) }),
		Steal:          median(func(r Run) float64 { return r.StealRatio }),
		ClientLag:      median(func(r Run) float64 { return r.ClientLag.P99 }),
		ClientCPU:      median(func(r Run) float64 { return r.ClientCPU }),
	}
	if slices.ContainsFunc(ev.Runs(mode), func(r Run) bool { return r.Answered > 0 }) {
		m.Answered = median(func(r Run) float64 { return Positive(r.Answered) })
	}
	m.Goodput = Number(stat.Ratio(ev.Sample(mode, func(r Run) float64 { return Positive(r.FramesPerS) }), ev.IdleCapacity(Exclusive), ev.Rule).Value)
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
	m.Failed, _ = ev.Failures(mode)
	m.WithStalls = ev.withStalls(mode)
	if h := ev.poolHistograms(mode); h != nil && h.TotalCount() > 0 {
		all := load.LatencyOf(h, load.LatencyUnit)
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
	out = append(out, ev.planWarnings()...)
	for _, mode := range r.Order {
		m := r.Modes[mode]
		if m.Failed > 0 {
			out = append(out, ev.failureText(mode)+"; this is an outcome of the mode, so nothing is claimed in its favour")
		}
		if void := m.Void - m.Failed; void*5 > m.Runs+m.Void {
			out = append(out, fmt.Sprintf("%s: %d of %d runs are void; what disturbs the machine may not disturb all modes alike", mode, void, m.Runs+m.Void))
		}
		if len(m.Errors) > 0 {
			out = append(out, fmt.Sprintf("%s: requests failed: %s", mode, countList(m.Errors)))
		}
	}
	if text := ev.selectionText(r.Order); text != "" {
		out = append(out, text+": the runs that remain are selected, and verdicts that rest on the selection are refused")
	}
	out = append(out, stallWarnings(r)...)
	for _, c := range r.Claims {
		for _, what := range slices.Sorted(maps.Keys(c.Numbers)) {
			if n := c.Numbers[what].Dropped; n > 0 {
				out = append(out, fmt.Sprintf("claim %s, %s: %s left out, because a value was not positive", c.Name, what, textlayout.Plural(n, "block", "blocks")))
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

// planWarnings lists what the experiment cannot show because of its plan.
func (ev Evidence) planWarnings() []string {
	var out []string
	if ev.Blocks < ev.Rule.Least {
		out = append(out, fmt.Sprintf("too few blocks for any verdict: %d, and claims need %d (--blocks %[2]d or more)", ev.Blocks, ev.Rule.Least))
	}
	switch {
	case len(ev.Looks) == 0:
		out = append(out, "the number of blocks was not fixed before the measurement (an older version): no verdict is final")
	case ev.Ended == EndHand:
		out = append(out, "stopped by hand: no verdict is final, because a look at the results may have chosen the moment")
	case ev.Ended == EndFailed:
		out = append(out, "ended by an error: no verdict is final")
	case ev.Ended == "" && !ev.Rule.IsLook(ev.Blocks):
		out = append(out, fmt.Sprintf("not ended: no verdict is final before %s", textlayout.Plural(ev.nextLook(), "block", "blocks")))
	}
	return out
}

// nextLook returns how many blocks there are at the next planned look.
func (ev Evidence) nextLook() int {
	for _, n := range ev.Looks {
		if n >= ev.Blocks {
			return n
		}
	}
	return ev.Rule.Last()
}

// IsResolved reports whether the experiment may end. It may end at a planned
// look if every claim has a final verdict. It may always end at the last look.
// If there are no claims, IsResolved returns false. This is the rule of
// --until-resolved.
func (a Analysis) IsResolved() bool {
	ev := a.evidence
	if ev.Blocks == 0 || !ev.Rule.IsLook(ev.Blocks) || len(a.Base.Claims) == 0 {
		return false
	}
	return ev.Blocks >= ev.Rule.Last() || !slices.ContainsFunc(a.Base.Claims, func(c Claim) bool { return !c.Final })
}
