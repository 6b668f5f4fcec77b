package concurrency

import (
	"fmt"
	"slices"
	"strconv"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/model/unit"
)

// Shares explains the time of a job by its CPU time and by the number of CPUs that
// it used on average. The other fields show why the job did not use more CPUs.
type Shares struct {
	// Time and Cost are the time and the CPU time of a job. Both are ratios
	// within blocks, to one job alone without a limit. Time is Cost divided by
	// the ratio of the CPUs that the two jobs used.
	Time report.Interval `json:"time_ratio,omitzero"`
	Cost report.Interval `json:"cost_ratio,omitzero"`
	CPUs report.Number   `json:"cpus_used"` // by a job, on average
	// OfLimit is the number of CPUs that were used, divided by the limit. It is
	// absent if there is no limit.
	OfLimit report.Number `json:"limit_used,omitzero"`
	// Throttled is the share of the quota periods in which a job was throttled.
	Throttled report.Number `json:"throttled_periods_share"`
	// Waiting is the time that the threads of a job waited for a CPU, per second
	// of the job.
	Waiting    report.Number `json:"waiting_per_second"`
	Migrations report.Number `json:"migrations_per_cpu_second"` // absent: not counted
	Switches   report.Number `json:"switches_per_cpu_second"`
	GHz        report.Number `json:"cycles_per_ns,omitzero"` // absent: this machine counts no cycles
	PeakMemory unit.Bytes    `json:"peak_memory_bytes"`
}

// compareByBlock compares two cells block by block.
func compareByBlock(of, to stat.Sample) stat.Estimate { return stat.Ratio(of, to, paired.Rule{}) }

// reference returns the option of one job without a limit.
func reference(all []jobs.Option) (jobs.Option, bool) {
	i := slices.IndexFunc(all, func(o jobs.Option) bool {
		return o.Cell.Strategy == unlimited && o.Cell.Concurrency == 1 && o.Cell.Threads == 0 && o.Cell.Memory == 0
	})
	if i < 0 {
		return jobs.Option{}, false
	}
	return all[i], true
}

// control removes the cell of strategy Control from r.measured, and compares
// that cell with the one that it repeats.
func (r *Result) control() {
	i := slices.IndexFunc(r.measured, func(o jobs.Option) bool { return o.Cell.Strategy == Control })
	if i < 0 {
		return
	}
	control := r.measured[i]
	r.measured = slices.Delete(r.measured, i, i+1)
	if equal, ok := reference(r.measured); ok {
		e := compareByBlock(control.SecondsBy, equal.SecondsBy)
		span := e
		r.Control = &span
		if e.Blocks > 1 {
			r.ControlHalf = report.Number((e.High - e.Low) / 2)
		}
	}
}

// falls reports whether a job's CPU time falls at a cliff within blocks, too.
// Without blocks this cannot be checked, and falls returns true.
func (r *Result) falls(c stat.Cliff) bool {
	high, low := map[int][]float64{}, map[int][]float64{}
	for _, w := range r.costs.Waves {
		block := w.Jobs[0].Extra.Block
		cost, _ := w.CPUSeconds()
		switch d := w.Demand(); {
		case block == 0:
			return true
		case d <= c.Before+0.025:
			high[block] = append(high[block], cost)
		default:
			low[block] = append(low[block], cost)
		}
	}
	e := compareByBlock(means(high), means(low))
	return e.Blocks > 1 && e.Low > 1+cliffMargin
}

func means(all map[int][]float64) stat.Sample {
	s := stat.Sample{}
	for block, values := range all {
		for _, v := range values {
			s[block] += v / float64(len(values))
		}
	}
	return s
}

// sharesOf computes the shares of a cell from the counters of its jobs.
func sharesOf(o jobs.Option, all []jobs.Option) *Shares {
	var length, cpu, wait, moves, switches, cycles, periods, held float64
	counted := map[string]bool{"moves": true, "switches": true, "cycles": true}
	var s Shares
	for _, j := range o.Jobs {
		used, known := j.Extra.CPUSeconds.Value()
		if !known || j.Extra.Strategy == "" {
			return nil
		}
		length, cpu = length+j.Duration().Seconds(), cpu+used
		wait += j.Extra.WaitSeconds.Or(0)
		periods += float64(j.Extra.Periods.Or(0))
		held += float64(j.Extra.ThrottledPeriods.Or(0))
		for _, c := range []struct {
			name string
			from interface{ Value() (float64, bool) }
			to   *float64
		}{{"moves", j.Extra.Migrations, &moves}, {"switches", j.Extra.Switches, &switches}, {"cycles", j.Extra.Cycles, &cycles}} {
			v, known := c.from.Value()
			counted[c.name] = counted[c.name] && known
			*c.to += v
		}
		s.PeakMemory = max(s.PeakMemory, j.Extra.PeakMemory.Or(0))
	}
	if length <= 0 || cpu <= 0 {
		return nil
	}
	s.CPUs, s.Waiting = report.Number(cpu/length), report.Number(wait/length)
	if limit := o.Cell.CPU.Cores(); limit > 0 {
		s.OfLimit = s.CPUs / report.Number(limit)
	}
	if periods > 0 {
		s.Throttled = report.Number(held / periods)
	}
	s.Migrations, s.Switches = unknownNumber, unknownNumber
	if counted["moves"] {
		s.Migrations = report.Number(moves / cpu)
	}
	if counted["switches"] {
		s.Switches = report.Number(switches / cpu)
	}
	if counted["cycles"] && cycles > 0 {
		s.GHz = report.Number(cycles / cpu / 1e9)
	}
	if alone, ok := reference(all); ok {
		s.Time = compareByBlock(o.SecondsBy, alone.SecondsBy)
		s.Cost = compareByBlock(o.CPUSecondsBy, alone.CPUSecondsBy)
	}
	return &s
}

// answers returns the advice for two goals: the most jobs an hour, and the shortest job.
func answers(r Result) []string {
	var lines []string
	for _, g := range []jobs.Goal{{}, {Shortest: true}} {
		if a, err := r.Advise(g, 0); err == nil {
			lines = append(lines, a.line())
		}
	}
	return lines
}

func controlText(r Result) string {
	if r.Control == nil || r.Control.Blocks < 2 {
		return ""
	}
	text := fmt.Sprintf("The job alone without a limit ran under two names, which differ by %s.", report.FormatRatio(*r.Control))
	if !r.ControlHalf.Known() {
		return text
	}
	return text + fmt.Sprintf(" If two ways differ by less than half of the width of this interval, %s %%, this measurement cannot tell them apart.", jobs.Figure(100*float64(r.ControlHalf)))
}

func ratioText[F ~float64](n F, span report.Interval) string {
	text := report.FormatNumber(n, 2)
	if span.Blocks > 1 && !span.IsVague() {
		text += fmt.Sprintf(" (%s to %s)", report.FormatNumber(span.Low, 2), report.FormatNumber(span.High, 2))
	}
	return text
}

const shareLegend = "time × and CPU time ×: relative to the reference, one job alone without a limit. CPUs: the number that a job used on average, not relative: time × = CPU time × multiplied by the CPUs of the reference and divided by the CPUs of the row. held: share of the quota's periods in which a job was stopped; waits: time that the threads of a job wait for a CPU, per second; moves: changes of the CPU."

// shareColumns returns the columns of the shares. A terminal has room neither for
// the intervals nor for the memory (wide).
func shareColumns(wide bool) []page.Column[Option] {
	ratio := func(n report.Interval) string {
		if wide {
			return ratioText(n.Value, n)
		}
		return report.FormatNumber(n.Value, 2)
	}
	columns := []page.Column[Option]{
		{Name: "how", Text: func(o Option) string { return name(o.cell()) }},
		{Name: "limit", Text: func(o Option) string { return limitOrRequest(o.Limit, o.Request) }},
		{Name: "jobs", Text: func(o Option) string { return strconv.Itoa(o.Asked) }},
		{Name: "time ×", Text: func(o Option) string { return ratio(o.Shares.Time) }},
		{Name: "CPU time ×", Text: func(o Option) string { return ratio(o.Shares.Cost) }},
		{Name: "CPUs", Text: func(o Option) string { return report.FormatNumber(o.Shares.CPUs, 2) }},
		{Name: "of limit %", Text: func(o Option) string {
			if !(o.Shares.OfLimit > 0) {
				return report.Unknown
			}
			return report.Scaled(o.Shares.OfLimit, 100, 0)
		}},
		{Name: "held %", Text: func(o Option) string { return report.Scaled(o.Shares.Throttled, 100, 0) }},
		{Name: "waits s/s", Text: func(o Option) string { return report.FormatNumber(o.Shares.Waiting, 2) }},
		{Name: "moves/CPU-s", Text: func(o Option) string { return report.FormatNumber(o.Shares.Migrations, 1) }},
	}
	if wide {
		columns = append(columns, page.Column[Option]{Name: "peak MiB", Text: func(o Option) string { return strconv.FormatInt(int64(o.Shares.PeakMemory>>20), 10) }})
	}
	return columns
}

func (o Option) cell() jobs.Cell {
	return jobs.Cell{Type: o.Type, Strategy: o.Strategy, Concurrency: o.Asked, CPU: o.Limit + o.Request, Memory: o.Memory, Threads: o.Threads}
}
