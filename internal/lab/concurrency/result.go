package concurrency

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// A Result is the result of an experiment: result.json.
type Result struct {
	Experiment Experiment `json:"experiment"`
	Jobs       int        `json:"jobs"` // number of jobs that count
	Void       []VoidJob  `json:"void_jobs,omitempty"`
	Options    []Option   `json:"options"`
	Causes     []Cause    `json:"causes"`
	Named      string     `json:"named_cause,omitempty"` // empty: no cause is clearly the main one
	Cliff      *Cliff     `json:"cliff,omitempty"`
	// CPUMeasured is false if the CPU time of a job was computed as limit ×
	// duration, and not measured.
	CPUMeasured bool `json:"cpu_measured"`
	// Control shows the noise: it is the ratio of the job times of two equal
	// cells, each with one job and no limit. It is absent if only one of them
	// ran. ControlHalf is half the width of its interval. Smaller differences
	// between cells must not be trusted.
	Control     *report.Interval `json:"control,omitempty"`
	ControlHalf report.Number    `json:"control_half_width,omitzero"`
	// Memory is absent if all jobs had the same amount of memory.
	Memory      *jobs.MemoryEffect `json:"memory_effect,omitempty"`
	Comparisons []Comparison       `json:"comparisons,omitempty"`
	Crossings   []Crossing         `json:"crossings,omitempty"`
	// BelowOne is absent if no two cells have a limit below one CPU.
	BelowOne   *BelowOne     `json:"below_one_cpu,omitempty"`
	Hypotheses []Hypothesis  `json:"hypotheses,omitempty"`
	Warnings   []string      `json:"warnings,omitempty"`
	costs      jobs.Costs    // for the pictures
	measured   []jobs.Option // the options with their estimates
	findings   []finding     // the hypotheses as values
}

// Result returns the content of result.json.
func (r Result) Result() any { return r }

// A VoidJob is a row that does not count.
type VoidJob struct {
	Host   string `json:"host"`
	Cell   string `json:"cell"`
	Index  int    `json:"job"`
	Reason string `json:"reason"`
}

// An Option is a measured way to run jobs.
type Option struct {
	Type       string          `json:"type"`
	Strategy   string          `json:"strategy,omitempty"`
	Limit      unit.MilliCPU   `json:"limit_mcpu"`             // 0: there is no limit, or it is not known
	Request    unit.MilliCPU   `json:"request_mcpu,omitempty"` // of jobs whose CPU is no limit
	Memory     unit.Bytes      `json:"memory_bytes"`
	Threads    int             `json:"threads,omitempty"`
	Asked      int             `json:"jobs"`        // on one node
	Beside     report.Number   `json:"jobs_beside"` // jobs that really ran at the same time
	Seconds    report.Interval `json:"job_seconds"`
	Hourly     report.Interval `json:"jobs_per_hour"`
	CPUSeconds report.Number   `json:"cpu_seconds"` // of a job
	// Penalty is the time of a job, divided by the time of a job that runs
	// alone under the same conditions. It is absent if no job ran alone.
	Penalty report.Number `json:"penalty,omitzero"`
	// Shares says why a job takes this long. It is absent in imported tables.
	Shares *Shares `json:"shares,omitempty"`
}

// A Cause is a variable, with the share of the variance of a job's CPU time
// that it explains.
type Cause struct {
	Variable string        `json:"variable"`
	Groups   int           `json:"groups"`
	Share    report.Number `json:"share"`          // R²
	Adjusted report.Number `json:"adjusted_share"` // R², adjusted for the number of groups
}

// A Cliff is the largest drop of a job's CPU time as the jobs of a node request
// more and more CPUs together.
type Cliff struct {
	Before report.Number `json:"before_cpus"`
	After  report.Number `json:"after_cpus"`
	High   report.Number `json:"high_cpu_seconds"`
	Low    report.Number `json:"low_cpu_seconds"`
}

// A Comparison divides the times of jobs of one type by those of another type.
// The jobs of both types have the same limit and the same concurrency on a node.
type Comparison struct {
	Of      string        `json:"of"`
	To      string        `json:"to"`
	Limit   unit.MilliCPU `json:"limit_mcpu"`
	Request unit.MilliCPU `json:"request_mcpu,omitempty"` // of jobs whose CPU is no limit
	Memory  unit.Bytes    `json:"memory_bytes"`
	Jobs    int           `json:"jobs"`
	Seconds report.Number `json:"job_seconds_ratio"`
	CPU     report.Number `json:"cpu_seconds_ratio"`
	// The intervals of both ratios. They are absent if each cell ran only once.
	SecondsSpan report.Interval `json:"job_seconds_ratio_interval,omitzero"`
	CPUSpan     report.Interval `json:"cpu_seconds_ratio_interval,omitzero"`
}

// cliffMargin is the smallest decrease that counts as a cliff, relative to the
// lower level.
const cliffMargin = 0.10

// Analyse turns the jobs of an experiment into its result.
func Analyse(e Experiment, all []jobs.Job) Result {
	r := Result{Experiment: e}
	for _, j := range all {
		if j.Extra.Void != "" {
			r.Void = append(r.Void, VoidJob{j.Host, describe(j.Cell()), j.Index, j.Extra.Void})
		}
	}
	r.Jobs = len(all) - len(r.Void)
	waves := jobs.Waves(all)
	r.costs = jobs.CostsOf(waves)
	r.CPUMeasured = r.costs.Measured
	r.measured = jobs.Options(waves)
	r.control()
	for _, o := range r.measured {
		r.Options = append(r.Options, optionOf(o, r.measured))
	}
	for _, c := range r.costs.Causes {
		r.Causes = append(r.Causes, Cause{c.Name, c.Groups, report.Number(c.Share), report.Number(c.Adjusted)})
	}
	r.Named = r.costs.Named
	if c := r.costs.Cliff; r.costs.HasCliff && c.High >= c.Low*(1+cliffMargin) && r.falls(c) {
		r.Cliff = &Cliff{report.Number(c.Before), report.Number(c.After), report.Number(c.High), report.Number(c.Low)}
	}
	if e, ok := jobs.MemoryEffectOf(r.measured); ok {
		r.Memory = &e
	}
	pairs, count := pairsOf(r.measured)
	if count <= maxComparisons {
		r.Comparisons = compare(r.measured, pairs)
	}
	r.Crossings, r.BelowOne = r.crossings(), r.belowOne()
	if r.CPUMeasured && len(e.Imported) == 0 {
		r.explain()
	}
	r.Warnings = warnings(r, waves)
	if count > maxComparisons {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d pairs of ways have the same limit and number of jobs. Pairs are compared up to %d only, so none is compared.", count, maxComparisons))
	}
	return r
}

func optionOf(o jobs.Option, all []jobs.Option) Option {
	c := Option{
		Type: o.Cell.Type, Strategy: o.Cell.Strategy, Memory: o.Cell.Memory, Threads: o.Cell.Threads, Asked: o.Cell.Concurrency,
		Beside: report.Number(o.Beside), Seconds: o.Seconds, Hourly: o.Hourly, CPUSeconds: report.Number(o.CPUSeconds),
	}
	c.Limit, c.Request = limitOf(o)
	alone := o.Cell
	alone.Concurrency = 1
	if i := slices.IndexFunc(all, func(b jobs.Option) bool { return b.Cell == alone }); i >= 0 {
		c.Penalty = report.Number(compareByBlock(o.SecondsBy, all[i].SecondsBy).Value)
	}
	c.Shares = sharesOf(o, all)
	return c
}

// limitOf returns the CPU limit of the jobs, or only what they requested. The lab's own
// jobs of strategy burst have a limit, of which their quota is a multiple.
func limitOf(o jobs.Option) (limit, request unit.MilliCPU) {
	if o.Cell.IsRequest() && !(isBurst(o.Cell) && o.Measured) {
		return 0, o.Cell.CPU
	}
	return o.Cell.CPU, 0
}

// isBurst reports whether the jobs had a limit above their request, which is not known
// for imported jobs.
func isBurst(c jobs.Cell) bool { return cmp.Or(c.Strategy, c.Type) == burstStrategy }

// burstStrategy is the strategy whose quota is a multiple of the CPU of the cell.
const burstStrategy = "burst"

// maxComparisons is the largest number of pairs that are compared. Their number
// grows with the square of the number of types.
const maxComparisons = 1000

// pairsOf counts the pairs of options that differ only in type or strategy. It
// returns the indices of the first maxComparisons pairs.
func pairsOf(all []jobs.Option) (pairs [][2]int, count int) {
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = name(o.Cell)
	}
	for i := range all {
		x := &all[i].Cell
		for k := i + 1; k < len(all); k++ {
			y := &all[k].Cell
			if names[i] == names[k] || x.IsRequest() != y.IsRequest() || x.CPU != y.CPU || x.Memory != y.Memory || x.Concurrency != y.Concurrency {
				continue
			}
			if count++; count <= maxComparisons {
				pairs = append(pairs, [2]int{i, k})
			}
		}
	}
	return pairs, count
}

// compare compares options in pairs.
func compare(all []jobs.Option, chosen [][2]int) []Comparison {
	var pairs []Comparison
	for _, pair := range chosen {
		a, b := all[pair[0]], all[pair[1]]
		x, y := a.Cell, b.Cell
		times, costs := compareByBlock(b.SecondsBy, a.SecondsBy), compareByBlock(b.CPUSecondsBy, a.CPUSecondsBy)
		c := Comparison{
			Of: name(y), To: name(x), Memory: x.Memory, Jobs: x.Concurrency,
			Seconds: report.Number(times.Value), CPU: report.Number(costs.Value),
		}
		c.Limit, c.Request = limitOf(a)
		if times.Blocks > 1 {
			c.SecondsSpan, c.CPUSpan = times, costs
		}
		pairs = append(pairs, c)
	}
	slices.SortFunc(pairs, func(a, b Comparison) int {
		return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Limit+a.Request, b.Limit+b.Request), cmp.Compare(a.Jobs, b.Jobs), cmp.Compare(a.Memory, b.Memory))
	})
	return pairs
}

// name returns the strategy of a cell, or its type if the strategy is not
// known. It adds how many threads the jobs were given.
func name(c jobs.Cell) string {
	text := cmp.Or(c.Strategy, c.Type)
	if c.Threads > 0 {
		text += ", " + textlayout.Plural(c.Threads, "thread", "threads")
	}
	return text
}

func describe(c jobs.Cell) string {
	limit := "no limit"
	switch {
	case c.CPU > 0 && isBurst(c):
		limit = fmt.Sprintf("burst above %s", cpusText(c.CPU))
	case c.CPU > 0 && c.IsRequest():
		limit = fmt.Sprintf("no limit, request %s", cpusText(c.CPU))
	case c.CPU > 0:
		limit = fmt.Sprintf("limit %s", cpusText(c.CPU))
	}
	return fmt.Sprintf("%s, %s, %s", name(c), textlayout.Plural(c.Concurrency, "job", "jobs"), limit)
}

// cpusText prints an amount with its unit: 1 CPU, 0.5 CPUs.
func cpusText(m unit.MilliCPU) string {
	if m == 1000 {
		return "1 CPU"
	}
	return fmt.Sprintf("%g CPUs", m.Cores())
}

// runsOf returns how often a cell ran, at least and at most. In an experiment
// without blocks, each wave counts as a run.
func runsOf(r Result) (least, most int) {
	if r.Experiment.Blocks > 1 || len(r.measured) == 0 {
		n := max(r.Experiment.Blocks, 1)
		return n, n
	}
	for i, o := range r.measured {
		if i == 0 || o.Seconds.Blocks < least {
			least = o.Seconds.Blocks
		}
		most = max(most, o.Seconds.Blocks)
	}
	return least, most
}

func warnings(r Result, waves []jobs.Wave) []string {
	var w []string
	switch _, most := runsOf(r); {
	case len(r.measured) == 0 || r.Experiment.Blocks > 1:
	case most > 1:
		w = append(w, "The jobs name no blocks: nothing says which runs of two cells belong together, and a slow hour of the machine looks like an effect.")
	default:
		w = append(w, "Each cell ran once: there is no interval between cells, and a slow hour of the machine looks like an effect.")
	}
	if !r.CPUMeasured && len(r.costs.Waves) > 0 {
		w = append(w, "The CPU time of a job is limit × duration, which holds for jobs that used their whole limit.")
	}
	if slices.ContainsFunc(r.measured, func(o jobs.Option) bool { return math.IsNaN(o.CPUSeconds) }) {
		w = append(w, "The CPU time of jobs without a limit, or with a burst above it, was not measured. It is not known.")
	}
	type wave struct { // on all nodes
		cell jobs.Cell
		run  int
	}
	lopsided := map[wave]bool{}
	for _, v := range waves {
		if v.Lopsided {
			lopsided[wave{v.Cell, v.Run}] = true
		}
	}
	if n := len(lopsided); n > 0 {
		w = append(w, fmt.Sprintf("In %s the nodes had different numbers of jobs; each job counts by those that ran beside it on its node.", textlayout.Plural(n, "wave", "waves")))
	}
	late := len(slices.DeleteFunc(slices.Clone(waves), func(v jobs.Wave) bool { return !v.Late }))
	if late > 0 {
		w = append(w, fmt.Sprintf("%s began after the others of their cell had ended; they are cells of their own.", textlayout.Plural(late, "wave", "waves")))
	}
	return w
}

// Best returns the best option for a goal, and the options that count as equal
// to it (see jobs.Best). The method tie defines how close equal options are.
func (r Result) Best(g jobs.Goal) (best jobs.Option, ties []jobs.Option, err error) {
	return jobs.Best(r.measured, g, r.tie())
}

// tie returns the factor up to which two options count as equal: 1 +
// ControlHalf/2. The advice is the simplest of equal options. With a larger
// factor, it would often be worse than the best option by more than the
// measurement can show (docs/lab-statistics.md). Without a control, the factor
// is a median over the options: of the upper bound of their jobs per hour,
// divided by the value. If each option ran only once, it is 1.02.
func (r Result) tie() float64 {
	if r.ControlHalf > 0 {
		return 1 + float64(r.ControlHalf)/2
	}
	widths := stat.Sample{}
	for i, o := range r.measured {
		if o.Hourly.Blocks > 1 {
			widths[i] = o.Hourly.High / o.Hourly.Value
		}
	}
	if len(widths) == 0 {
		return 1.02
	}
	return max(1, stat.Median(widths))
}
