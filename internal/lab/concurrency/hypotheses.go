package concurrency

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
)

// A Hypothesis is a possible reason why jobs cost more CPU time under some
// conditions. Its verdict comes from this measurement.
type Hypothesis struct {
	Cause   string `json:"cause"`
	Verdict string `json:"verdict"` // supported, ruled out, cannot tell
	Figure  string `json:"figure"`  // the figure that decides the verdict
}

const (
	supported = "supported"
	ruledOut  = "ruled out"
	unclear   = "cannot tell"
)

// unknownNumber stands for a number that was not measured.
var unknownNumber = report.Number(math.NaN())

// quotaStrategy is the strategy whose jobs share all CPUs under a quota.
const quotaStrategy = "quota"

// explain judges possible causes that the published experiment left open.
func (r *Result) explain() {
	r.Hypotheses = append(r.Hypotheses, r.lostQuota(), r.clock(), r.siblings(), r.coldCaches(), r.hypervisor())
}

// singleLimits returns the options with one job under a quota, sorted by limit.
func (r *Result) singleLimits() []jobs.Option {
	var all []jobs.Option
	for _, o := range r.measured {
		if o.Cell.Strategy == quotaStrategy && o.Cell.Concurrency == 1 && o.Cell.Threads == 0 {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b jobs.Option) int { return cmp.Compare(a.Cell.CPU, b.Cell.CPU) })
	return all
}

func (r *Result) lostQuota() Hypothesis {
	h := Hypothesis{Cause: "a part of the quota is lost", Verdict: unclear, Figure: "No job was held by a quota for half of its periods."}
	used := stat.Sample{}
	for i, o := range r.Options {
		if s := o.Shares; s != nil && o.Strategy == quotaStrategy && s.Throttled > 0.5 {
			used[i] = float64(s.OfLimit)
		}
	}
	if len(used) == 0 {
		return h
	}
	h.Verdict = ruledOut
	if stat.Median(used) < 0.95 {
		h.Verdict = supported
	}
	h.Figure = fmt.Sprintf("Jobs that their quota held used %.0f %% of it (median of %d cells).", 100*stat.Median(used), len(used))
	return h
}

func (r *Result) clock() Hypothesis {
	h := Hypothesis{Cause: "the clock is slow on a machine that is half idle", Verdict: unclear, Figure: "This machine counts no cycles, as most virtual machines: its clock cannot be seen."}
	lowest, highest := math.Inf(1), 0.0
	for _, o := range r.Options {
		if o.Shares != nil && o.Shares.GHz > 0 {
			lowest, highest = min(lowest, float64(o.Shares.GHz)), max(highest, float64(o.Shares.GHz))
		}
	}
	if highest == 0 {
		return h
	}
	h.Verdict = ruledOut
	if highest > lowest*(1+cliffMargin) {
		h.Verdict = supported
	}
	h.Figure = fmt.Sprintf("Cells ran at %.2f to %.2f GHz.", lowest, highest)
	return h
}

func (r *Result) siblings() Hypothesis {
	h := Hypothesis{Cause: "threads of a job run on siblings of one core", Verdict: unclear, Figure: "No core of this machine has siblings."}
	if n := r.Experiment.Node; n.Cores == n.CPUs {
		return h
	}
	h.Figure = "No cell with one job ran both under a quota and pinned."
	for _, c := range r.Comparisons {
		if c.Jobs != 1 || c.CPUSpan.Blocks < 2 || !(c.Of == quotaStrategy && c.To == "pinned") {
			continue
		}
		h.Figure = fmt.Sprintf("A job with limit %s costs %s times as much under a quota as on cores of its own.", limitText(c.Limit), ratioText(c.CPU, c.CPUSpan))
		switch {
		case c.CPUSpan.Low > 1+cliffMargin:
			h.Verdict = supported
		case c.CPUSpan.High < 1+cliffMargin:
			h.Verdict = ruledOut
		}
	}
	return h
}

func (r *Result) coldCaches() Hypothesis {
	h := Hypothesis{Cause: "caches are cold after each stop by the quota", Verdict: unclear, Figure: "Fewer than two limits ran under a quota."}
	all := r.singleLimits()
	if len(all) < 2 {
		return h
	}
	least, most := all[0], all[len(all)-1]
	e := compareByBlock(least.CPUSecondsBy, most.CPUSecondsBy)
	h.Figure = fmt.Sprintf("A job alone with limit %s costs %s times as much as one with limit %s.", limitText(least.Cell.CPU), ratioText(report.Number(e.Value), report.IntervalOf(e)), limitText(most.Cell.CPU))
	switch {
	case e.Blocks > 1 && e.Low > 1+cliffMargin:
		h.Verdict = supported
		h.Figure += " A slow clock would look the same."
	case e.Blocks > 1 && e.High < 1+cliffMargin:
		h.Verdict = ruledOut
	}
	return h
}

func (r *Result) hypervisor() Hypothesis {
	h := Hypothesis{Cause: "the hypervisor takes CPU time", Verdict: unclear, Figure: "The machine is not described."}
	m := r.Experiment.Machine
	switch {
	case m == nil:
	case m.Virtualization == "none":
		h.Verdict, h.Figure = ruledOut, "This machine is not virtual."
	default:
		h.Figure = "Runs with steal time are void; a hypervisor may stop CPUs without saying so."
	}
	return h
}
