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
	"tenon.sh/tenon/internal/model/unit"
)

// A Hypothesis is a possible reason why jobs cost more CPU time under some
// conditions, in words. Its verdict comes from this measurement.
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

// A finding is what this measurement says about a possible cause, as values.
type finding struct {
	cause   cause
	verdict string
	lack    lack // why nothing was compared; 0: the numbers below were
	cells   int
	span    stat.Estimate // the used share of a quota
	ghz     float64       // the clock of a half idle machine
	ratios  []limitRatio
}

// A limitRatio is a ratio of jobs with a limit, to jobs with the limit other, if
// there is one.
type limitRatio struct {
	limit, other unit.MilliCPU
	memory       unit.Bytes
	ratio        stat.Estimate
}

// A cause is a possible cause that the published experiment left open.
type cause int

const (
	quotaLoss cause = iota
	slowClock
	busySiblings
	coldCaches
	hypervisor
)

// A lack is a reason why the measurement decides nothing.
type lack int

const (
	_ lack = iota
	neverHeld
	oneBlock
	noCycles
	noPairOfCells
	noSiblings
	notPinned
	oneLimit
	notDescribed
	notVirtual
	stealIsVoid
)

// unknownNumber stands for a number that was not measured.
var unknownNumber = report.Number(math.NaN())

// quotaStrategy is the strategy whose jobs share all CPUs under a quota.
const quotaStrategy = "quota"

// explain judges possible causes that the published experiment left open.
func (r *Result) explain() {
	for _, f := range []finding{r.lostQuota(), r.clock(), r.siblings(), r.coldCaches(), r.hypervisor()} {
		r.findings = append(r.findings, f)
		r.Hypotheses = append(r.Hypotheses, f.hypothesis())
	}
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
func (r *Result) lostQuota() finding {
	h := finding{cause: quotaLoss, verdict: unclear, lack: neverHeld}
	least, most := map[int][]float64{}, map[int][]float64{}
	for i, o := range r.Options {
		if s := o.Shares; s == nil || o.Strategy != quotaStrategy || s.Throttled <= 0.5 {
			continue
		}
		h.cells++
		for block, used := range usedWhileHeld(r.measured[i].Jobs) {
			least[block], most[block] = append(least[block], used.least), append(most[block], used.most)
		}
	}
	if h.cells == 0 {
		return h
	}
	low, high := stat.Describe(means(least)), stat.Describe(means(most))
	if low.Blocks < 2 {
		h.lack = oneBlock
		return h
	}
	h.lack, h.span = 0, stat.Estimate{Low: max(low.Low, 0), High: min(high.High, 1), Blocks: low.Blocks}
	switch {
	case h.span.Low >= wholeQuota:
		h.verdict = ruledOut
	case h.span.High < wholeQuota:
		h.verdict = supported
	}
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
func (r *Result) clock() finding {
	h := finding{cause: slowClock, verdict: unclear, lack: noCycles}
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
		h.lack = noPairOfCells
		return h
	}
	h.lack, h.ghz, h.ratios = 0, stat.Describe(means(half)).Value, []limitRatio{{ratio: e}}
	h.judge()
	return h
}

// judge decides by the only ratio.
func (h *finding) judge() {
	switch e := h.ratios[0].ratio; {
	case e.Blocks > 1 && e.Low > 1+cliffMargin:
		h.verdict = supported
	case e.Blocks > 1 && e.High < 1+cliffMargin:
		h.verdict = ruledOut
	}
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
func (r *Result) siblings() finding {
	h := finding{cause: busySiblings, verdict: unclear, lack: noSiblings}
	if n := r.Experiment.Node; n.Cores == n.CPUs {
		return h
	}
	more, same := 0, 0
	for _, c := range r.Comparisons {
		if c.Jobs != 1 || c.CPUSpan.Blocks < 2 || !(c.Of == quotaStrategy && c.To == "pinned") {
			continue
		}
		h.ratios = append(h.ratios, limitRatio{limit: c.Limit, memory: c.Memory, ratio: c.CPUSpan})
		switch {
		case c.CPUSpan.Low > 1+cliffMargin:
			more++
		case c.CPUSpan.High < 1+cliffMargin:
			same++
		}
	}
	switch h.lack = 0; {
	case len(h.ratios) == 0:
		h.lack = notPinned
	case more > 0:
		h.verdict = supported
	case same == len(h.ratios):
		h.verdict = ruledOut
	}
	return h
}

func (r *Result) coldCaches() finding {
	h := finding{cause: coldCaches, verdict: unclear, lack: oneLimit}
	all := r.singleLimits()
	if len(all) < 2 {
		return h
	}
	least, most := all[0], all[len(all)-1]
	h.lack, h.ratios = 0, []limitRatio{{limit: least.Cell.CPU, other: most.Cell.CPU, ratio: compareByBlock(least.CPUSecondsBy, most.CPUSecondsBy)}}
	h.judge()
	return h
}

func (r *Result) hypervisor() finding {
	h := finding{cause: hypervisor, verdict: unclear, lack: stealIsVoid}
	switch m := r.Experiment.Machine; {
	case !m.Known():
		h.lack = notDescribed
	case m.Virtualization == "none":
		h.verdict, h.lack = ruledOut, notVirtual
	}
	return h
}

var causeTexts = map[cause]string{
	quotaLoss: "a part of the quota is lost", slowClock: "the clock is slow on a machine that is half idle", busySiblings: "threads of a job run on siblings of one core",
	coldCaches: "caches are cold after each stop by the quota", hypervisor: "the hypervisor takes CPU time",
}

var lackTexts = map[lack]string{
	neverHeld:     "No job was held by a quota for half of its periods.",
	oneBlock:      "A quota held jobs in one block only, so there is no interval.",
	noCycles:      "This machine counts no cycles, as most virtual machines: its clock cannot be seen.",
	noPairOfCells: fmt.Sprintf("No block has both a cell in which at most %.0f %% of the CPUs were busy and one in which at least %.0f %% were.", 100*halfBusy, 100*fullBusy),
	noSiblings:    "No core of this machine has siblings.",
	notPinned:     "No cell with one job ran both under a quota and pinned, in two blocks or more.",
	oneLimit:      "Fewer than two limits ran under a quota.",
	notDescribed:  "The machine is not described.",
	notVirtual:    "This machine is not virtual.",
	stealIsVoid:   "Runs with steal time are void; a hypervisor may stop CPUs without saying so.",
}

// hypothesis writes a finding in words.
func (h finding) hypothesis() Hypothesis {
	text := lackTexts[h.lack]
	if h.lack == 0 {
		text = h.figure()
	}
	return Hypothesis{causeTexts[h.cause], h.verdict, text}
}

// figure writes the numbers that decide.
func (h finding) figure() (text string) {
	ratio := func(r limitRatio) string { return ratioText(report.Number(r.ratio.Value), r.ratio) }
	switch h.cause {
	case quotaLoss:
		return fmt.Sprintf("In the periods in which a quota stopped them, jobs used %.0f to %.0f %% of it (95 %% interval over %d blocks, mean of %s).",
			100*h.span.Low, 100*h.span.High, h.span.Blocks, textlayout.Plural(h.cells, "cell", "cells"))
	case slowClock:
		return fmt.Sprintf("With at most %.0f %% of the CPUs busy, jobs ran at %.2f GHz; with at least %.0f %% busy, the clock was %s times as fast.", 100*halfBusy, h.ghz, 100*fullBusy, ratio(h.ratios[0]))
	case busySiblings:
		var all []string
		for _, r := range h.ratios {
			one := ratio(r) + " with limit " + limitText(r.limit)
			if r.memory > 0 {
				one += " and " + memoryText(r.memory)
			}
			all = append(all, one)
		}
		text = fmt.Sprintf("The CPU time of a job alone under a quota, divided by that of one on CPUs of its own, is %s.", strings.Join(all, ", "))
		if h.verdict == supported {
			text += " Stops by the quota, and moves between CPUs, would look the same."
		}
	case coldCaches:
		r := h.ratios[0]
		text = fmt.Sprintf("A job alone with limit %s costs %s times as much as one with limit %s.", limitText(r.limit), ratio(r), limitText(r.other))
		if h.verdict == supported {
			text += " A slow clock would look the same."
		}
	}
	return text
}
