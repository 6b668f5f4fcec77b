package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/lab/stat"
)

// A MemoryResult is what one mode of the memory experiment showed: medians
// over the blocks with a valid run.
type MemoryResult struct {
	Refaults    Number `json:"ls_refaults_per_second"`
	MajorFaults Number `json:"ls_major_faults_per_second"`
	LSHeld      Number `json:"ls_in_memory_ratio"` // of the working set
	Processed   Number `json:"be_mib_per_second"`
}

func (ev evidence) memorySummary(mode Mode) *MemoryResult {
	median := func(m metric) Number { return Number(stat.Median(ev.sample(mode, m))) }
	return &MemoryResult{
		Refaults: median(refaults), MajorFaults: median(majorFaults),
		LSHeld: median(lsHeld(ev.Memory.Set)), Processed: median(processed),
	}
}

// What the memory experiment sets out to show.
const (
	memoryBetter  = 1.2 // P99 of default to tenond, at least
	fewerRefaults = 1.0 // a second
	memoryKept    = 0.5 // what the batch work gets under tenond of what it gets under default, at least
)

// memoryClaims judges the memory experiment.
func (ev evidence) memoryClaims(resolution stat.Resolution) []Claim {
	if !ev.asked(Default) || !ev.asked(Tenond) {
		return nil
	}
	p99 := percentiles["p99"]
	tail := ev.ratio(Default, Tenond, p99)
	back := stat.Difference(ev.sample(Default, refaults), ev.sample(Tenond, refaults))
	work := ev.ratio(Tenond, Default, processed)
	claims := []Claim{
		Claim{
			Name:        "tenond-better-than-default",
			Statement:   fmt.Sprintf("Without Tenon the service's P99 is at least %s higher than with it", limit(memoryBetter)),
			Numbers:     map[string]Interval{"default_to_tenond": intervalOf(tail)},
			Explanation: fmt.Sprintf("P99, %s to %s: %s.", Default, Tenond, ratio(intervalOf(tail))),
		}.with(stat.AtLeast(tail, memoryBetter)),
		Claim{
			Name:        "tenond-fewer-refaults",
			Statement:   "With Tenon fewer of the service's pages have to be read back, by one a second or more",
			Numbers:     map[string]Interval{"refaults_per_second": intervalOf(back)},
			Explanation: fmt.Sprintf("Refaults of the service a second, %s − %s: %s.", Default, Tenond, quantity(intervalOf(back), 1, "")),
		}.with(stat.AtLeast(back, fewerRefaults)),
	}
	if ev.asked(Exclusive) {
		statement := fmt.Sprintf("With Tenon the service's P99 is at most %s above that of the service alone", limit(ev.Margin))
		claims = append(claims, ev.asAlone(Tenond, statement, resolution))
	}
	return append(claims, Claim{
		Name:        "batch-goes-on",
		Statement:   fmt.Sprintf("With Tenon the batch work gets through at least %.0f %% of the data that it gets through without", 100*memoryKept),
		Numbers:     map[string]Interval{"tenond_to_default": intervalOf(work)},
		Explanation: fmt.Sprintf("Bytes gone through, %s to %s: %s.", Tenond, Default, ratio(intervalOf(work))),
	}.with(stat.AtLeast(work, memoryKept)))
}

var memoryTables = []section{{"Memory", []Mode{Exclusive, ExclusiveAA, Default, Tenond}}}

var memoryRows = slices.Concat(
	slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.label == "BE frames/s" || r.label == "RT-P75" || r.label == "RT-P90" }),
	[]row{
		{"LS refaults/s", "", memoryCell(func(m MemoryResult) string { return number(m.Refaults, 0) })},
		{"LS majflt/s", "", memoryCell(func(m MemoryResult) string { return number(m.MajorFaults, 1) })},
		{"LS in memory", "%", memoryCell(func(m MemoryResult) string { return scaled(m.LSHeld, 100, 0) })},
		{"BE MiB/s", "", memoryCell(func(m MemoryResult) string { return number(m.Processed, 0) })},
	})

func memoryCell(text func(MemoryResult) string) func(Result, Mode) string {
	return func(r Result, m Mode) string {
		if use := r.Modes[m].Memory; use != nil {
			return text(*use)
		}
		return unknown
	}
}

const memoryLegend = "Latency in ms from the intended send time, without the requests that were due while the client's own CPU stood still, median over blocks; " +
	"run-queue delay in µs, the service's mean wait for a CPU per timeslice; refaults: pages of the service that had to be read back. LS in memory: page cache of the service in percent of its pages. " +
	"In brackets: change to exclusive, as the geometric mean of the ratios within blocks (not the quotient of the cells)."

func memoryHeadline(r Result) string {
	e := r.Experiment
	return fmt.Sprintf("nginx with %d MiB of pages, %.0f requests/s at random; a memory hog that wants %d MiB; both may use %d MiB together; cgroup v%d; %s, %s a run, %s.",
		e.Memory.Set>>20, e.OfferedRate, (e.Memory.HogFile+e.Memory.HogHeld)>>20, e.Memory.Parent>>20, e.Machine.CgroupVersion,
		plural(r.Blocks, "block", "blocks"), e.Duration.Round(time.Second/10), plural(len(r.VoidRuns), "void run", "void runs"))
}

func memoryFigures() []row {
	return []row{
		{"LS refaults", "1/s", memoryCell(func(m MemoryResult) string { return number(m.Refaults, 1) })},
		{"LS major faults", "1/s", memoryCell(func(m MemoryResult) string { return number(m.MajorFaults, 1) })},
		{"LS pages in memory", "%", memoryCell(func(m MemoryResult) string { return scaled(m.LSHeld, 100, 1) })},
		{"BE MiB/s", "", memoryCell(func(m MemoryResult) string { return number(m.Processed, 1) })},
	}
}

// memoryPlots keeps two plots of the colocation experiment and adds its own.
func memoryPlots(ev evidence, r Result, ratios, p99 plot) []plot {
	ratios.Text = fmt.Sprintf("The dashed lines are “no change” and the margin of %s.", limit(r.Experiment.Margin))
	level := func(title, text string, m metric, format func(float64) string) plot {
		ends := func(e stat.Estimate) string { return format(e.Value) }
		return plot{title, text, drawDots(ev.levelStrips(r.Order, m), scale{title: title, label: title, format: format, ends: ends})}
	}
	return []plot{
		ratios, p99,
		level("Refaults of the service a second, by block", "Modes without a single refault have no dot on this logarithmic axis.", refaults, func(v float64) string { return fmt.Sprintf("%.3g", v) }),
		level("MiB/s that the batch work goes through, by block", "", processed, func(v float64) string { return fmt.Sprintf("%.4g", v) }),
	}
}

// memoryPicture shows who held how much memory in one run; empty: unknown.
func memoryPicture(e Experiment, used []Run) template.HTML {
	i := slices.IndexFunc(used, func(r Run) bool { return r.Memory != nil && len(r.Memory.Course) > 1 })
	if i < 0 || !e.isMemory() {
		return ""
	}
	course := used[i].Memory.Course
	const width, height, left, right, top, bottom = 440, 190, 40, 12, 8, 34
	length := max(course[len(course)-1].At, time.Millisecond)
	const mib = 1 << 20
	most := float64(e.Memory.Parent) / mib
	for _, h := range course {
		most = max(most, float64(h.LS+h.BEFile+h.BEAnon)/mib)
	}
	d := newDrawing(width, height, "Memory over time in mode "+string(used[i].Mode))
	x := axis{lo: 0, hi: length.Seconds(), begin: left, end: width - right}
	y := axis{lo: 0, hi: math.Max(most, 1), begin: height - bottom, end: top}
	stack := func(upTo func(Held) float64, class string) {
		points := []point{{x.at(0), y.at(0)}}
		for _, h := range course {
			points = append(points, point{x.at(max(h.At.Seconds(), 0)), y.at(min(upTo(h)/mib, y.hi))})
		}
		d.path(append(points, point{x.at(length.Seconds()), y.at(0)}), "area "+class, "")
	}
	stack(func(h Held) float64 { return float64(h.LS + h.BEFile + h.BEAnon) }, "be")
	stack(func(h Held) float64 { return float64(h.LS + h.BEAnon) }, "anon")
	stack(func(h Held) float64 { return float64(h.LS) }, "ls")
	for _, v := range y.ticks(4) {
		d.line(left, y.at(v), width-right, y.at(v), "grid over")
		d.text(left-6, y.at(v)+4, "tick end", fmt.Sprintf("%.4g", v))
	}
	for _, v := range x.ticks(6) {
		d.text(x.at(v), height-bottom+16, "tick middle", fmt.Sprintf("%g s", v))
	}
	parent := y.at(min(float64(e.Memory.Parent)/mib, y.hi))
	d.path([]point{{left, parent}, {width - right, parent}}, "limit", "")
	d.line(left, height-bottom, width-right, height-bottom, "axis")
	d.text(left, height-4, "label start", fmt.Sprintf("run %03d, MiB", used[i].Index))
	return d.html()
}
