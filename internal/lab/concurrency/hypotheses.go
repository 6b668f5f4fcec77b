package concurrency

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
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

// wholeQuota is the share of a quota from which the quota counts as used. A
// smaller loss would not explain a difference of cliffMargin.
const wholeQuota = 0.95

// lostQuota judges the periods in which a quota stopped jobs. If a job used less
// than its quota in these periods, the rest was lost.
func (r *Result) lostQuota() Hypothesis {
	h := Hypothesis{Cause: "a part of the quota is lost", Verdict: unclear, Figure: "No job was held by a quota for half of its periods."}
	least, most := map[int][]float64{}, map[int][]float64{}
	cells := 0
	for i, o := range r.Options {
		if s := o.Shares; s == nil || o.Strategy != quotaStrategy || s.Throttled <= 0.5 {
			continue
		}
		cells++
		for block, used := range usedWhileHeld(r.measured[i].Jobs) {
			least[block], most[block] = append(least[block], used.least), append(most[block], used.most)
		}
	}
	if cells == 0 {
		return h
	}
	low, high := stat.Describe(means(least)), stat.Describe(means(most))
	if low.Blocks < 2 {
		h.Figure = "A quota held jobs in one block only, so there is no interval."
		return h
	}
	from, to := max(low.Low, 0), min(high.High, 1)
	switch {
	case from >= wholeQuota:
		h.Verdict = ruledOut
	case to < wholeQuota:
		h.Verdict = supported
	}
	h.Figure = fmt.Sprintf("In the periods in which a quota stopped them, jobs used %.0f to %.0f %% of it (95 %% interval over %d blocks, mean of %s).",
		100*from, 100*to, low.Blocks, textlayout.Plural(cells, "cell", "cells"))
	return h
}

// A heldUse is the share of a quota that jobs used in the periods in which the
// quota stopped them. The share itself is not counted, but it has bounds.
type heldUse struct{ least, most float64 }

// quotaPeriod is the period of a CPU quota in seconds, as the lab writes it. The
// kubelet writes the same by default.
const quotaPeriod = 0.1

// usedWhileHeld returns the share for each block in which a quota stopped one of
// the jobs. The share is greatest if the jobs used nothing in all other periods,
// and least if they used the whole quota in all other periods.
func usedWhileHeld(all []jobs.Job) map[int]heldUse {
	type sum struct{ length, used, periods, held float64 }
	sums := map[int]sum{}
	for _, j := range all {
		s := sums[j.Extra.Block]
		s.length += j.Duration().Seconds()
		s.used += j.Extra.CPUSeconds.Or(0) / j.CPU.Cores() // time in which the limit gives this much CPU time
		s.periods += float64(j.Extra.Periods.Or(0))
		s.held += float64(j.Extra.ThrottledPeriods.Or(0))
		sums[j.Extra.Block] = s
	}
	shares := map[int]heldUse{}
	for block, s := range sums {
		if s.held == 0 {
			continue
		}
		// The kernel counts no periods while all threads sleep, and a kubelet may
		// write shorter periods. The shorter time gives the wider bounds.
		held := min(s.held*quotaPeriod, s.held/s.periods*s.length)
		shares[block] = heldUse{least: max(0, min(1, 1-(s.length-s.used)/held)), most: min(1, s.used/held)}
	}
	return shares
}

// A machine is half idle if at most halfBusy of its CPUs are busy, and full if
// at least fullBusy of them are. Both leave room for the CPU time that jobs do
// not use at their begin and end.
const (
	halfBusy = 0.55
	fullBusy = 0.90
)

// clock compares the clock of a full machine with that of a half idle one,
// within blocks.
func (r *Result) clock() Hypothesis {
	h := Hypothesis{Cause: "the clock is slow on a machine that is half idle", Verdict: unclear, Figure: "This machine counts no cycles, as most virtual machines: its clock cannot be seen."}
	half, full := map[int][]float64{}, map[int][]float64{}
	counted := false
	for i, o := range r.Options {
		if o.Shares == nil || !(o.Shares.GHz > 0) {
			continue
		}
		counted = true
		var to map[int][]float64
		switch busy := float64(o.Beside*o.Shares.CPUs) / float64(r.Experiment.Node.CPUs); {
		case busy <= halfBusy:
			to = half
		case busy >= fullBusy:
			to = full
		default:
			continue
		}
		for block, ghz := range clocks(r.measured[i].Jobs) {
			to[block] = append(to[block], ghz)
		}
	}
	if !counted {
		return h
	}
	e := compareByBlock(means(full), means(half))
	if e.Blocks == 0 {
		h.Figure = fmt.Sprintf("No block has both a cell in which at most %.0f %% of the CPUs were busy and one in which at least %.0f %% were.", 100*halfBusy, 100*fullBusy)
		return h
	}
	switch {
	case e.Blocks > 1 && e.Low > 1+cliffMargin:
		h.Verdict = supported
	case e.Blocks > 1 && e.High < 1+cliffMargin:
		h.Verdict = ruledOut
	}
	h.Figure = fmt.Sprintf("With at most %.0f %% of the CPUs busy, jobs ran at %.2f GHz; with at least %.0f %% busy, the clock was %s times as fast.",
		100*halfBusy, stat.Describe(means(half)).Value, 100*fullBusy, ratioText(report.Number(e.Value), e))
	return h
}

// clocks returns the clock in GHz at which jobs ran, for each block.
func clocks(all []jobs.Job) map[int]float64 {
	cycles, seconds := map[int]float64{}, map[int]float64{}
	for _, j := range all {
		cycles[j.Extra.Block] += j.Extra.Cycles.Or(0)
		seconds[j.Extra.Block] += j.Extra.CPUSeconds.Or(0)
	}
	for block, s := range seconds {
		cycles[block] /= s * 1e9
	}
	return cycles
}

// siblings compares the CPU time of a job under a quota, whose threads may run
// on siblings, with that of a pinned job. It is supported if the job costs more
// under one limit, and ruled out only if it does not under any limit.
func (r *Result) siblings() Hypothesis {
	h := Hypothesis{Cause: "threads of a job run on siblings of one core", Verdict: unclear, Figure: "No core of this machine has siblings."}
	if n := r.Experiment.Node; n.Cores == n.CPUs {
		return h
	}
	var ratios []string
	more, same := 0, 0
	for _, c := range r.Comparisons {
		if c.Jobs != 1 || c.CPUSpan.Blocks < 2 || !(c.Of == quotaStrategy && c.To == "pinned") {
			continue
		}
		limit := "limit " + limitText(c.Limit)
		if c.Memory > 0 {
			limit += " and " + memoryText(c.Memory)
		}
		ratios = append(ratios, fmt.Sprintf("%s with %s", ratioText(c.CPU, c.CPUSpan), limit))
		switch {
		case c.CPUSpan.Low > 1+cliffMargin:
			more++
		case c.CPUSpan.High < 1+cliffMargin:
			same++
		}
	}
	if len(ratios) == 0 {
		h.Figure = "No cell with one job ran both under a quota and pinned, in two blocks or more."
		return h
	}
	h.Figure = fmt.Sprintf("The CPU time of a job alone under a quota, divided by that of one on CPUs of its own, is %s.", strings.Join(ratios, ", "))
	switch {
	case more > 0:
		h.Verdict = supported
		h.Figure += " Stops by the quota, and moves between CPUs, would look the same."
	case same == len(ratios):
		h.Verdict = ruledOut
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
	h.Figure = fmt.Sprintf("A job alone with limit %s costs %s times as much as one with limit %s.", limitText(least.Cell.CPU), ratioText(report.Number(e.Value), e), limitText(most.Cell.CPU))
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
	case !m.Known():
	case m.Virtualization == "none":
		h.Verdict, h.Figure = ruledOut, "This machine is not virtual."
	default:
		h.Figure = "Runs with steal time are void; a hypervisor may stop CPUs without saying so."
	}
	return h
}
