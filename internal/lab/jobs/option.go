package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/stat"
)

// An Option is a measured way to run jobs on one node.
type Option struct {
	Cell   Cell
	Beside float64 // jobs that really ran beside each other
	// Seconds is the duration of a job. Hourly is the number of jobs that a node
	// completes in an hour. Both are means over the blocks, with an interval.
	Seconds, Hourly stat.Estimate
	CPUSeconds      float64 // of a job; Measured is false if it was computed as limit × duration; NaN: not known
	Measured        bool
	Waves           int // number of waves with a duration above 0
	// Longest is the time of the slowest job in seconds.
	Longest float64
	// SecondsBy and CPUSecondsBy have one value for each block: the mean over
	// the block's waves. So options can be compared within blocks. Waves that
	// name no block have nothing to do with those of another option: their mean is
	// then the only value. CPUSecondsBy is empty if the CPU time is not known.
	SecondsBy, CPUSecondsBy stat.Sample
	// Jobs are the jobs of all waves.
	Jobs []Job
}

// Options returns the measured ways to run jobs. There is one for each cell and
// each number of jobs on a node. If a wave of a cell was late or lopsided, its
// concurrency was not the requested one. Such a wave belongs to the option with
// the concurrency that it really had.
func Options(waves []Wave) []Option {
	type key struct {
		cell   Cell
		beside float64
	}
	groups := map[key][]Wave{}
	for _, w := range waves {
		cell := w.Cell
		cell.Concurrency = w.Slots()
		k := key{cell, float64(cell.Concurrency)}
		groups[k] = append(groups[k], w)
	}
	var all []Option
	for k, group := range groups {
		o := Option{Cell: k.cell, Measured: true, SecondsBy: stat.Sample{}, CPUSecondsBy: stat.Sample{}}
		hourly, ran := stat.Sample{}, map[int]float64{} // ran: the number of waves in each block
		for i, w := range group {
			d := w.Seconds()
			if d <= 0 {
				continue
			}
			if block := w.Jobs[0].Extra.Block; block > 0 {
				i = block
			}
			cost, measured := w.CPUSeconds()
			o.SecondsBy[i] += d
			o.CPUSecondsBy[i] += cost
			hourly[i] += w.Beside * 3600 / d
			ran[i]++
			o.Waves++
			o.Jobs = append(o.Jobs, w.Jobs...)
			for _, j := range w.Jobs {
				o.Longest = max(o.Longest, j.Seconds())
			}
			o.CPUSeconds += cost
			o.Measured = o.Measured && measured
			o.Beside += w.Beside
		}
		if math.IsNaN(o.CPUSeconds) {
			o.CPUSecondsBy = nil
		}
		for block, n := range ran {
			o.SecondsBy[block] /= n
			if o.CPUSecondsBy != nil {
				o.CPUSecondsBy[block] /= n
			}
			hourly[block] /= n
		}
		o.CPUSeconds /= float64(o.Waves)
		o.Beside /= float64(o.Waves)
		o.Seconds, o.Hourly = describePositive(o.SecondsBy), describePositive(hourly)
		if o.Seconds.Blocks > 0 && !o.ranInBlocks() {
			o.SecondsBy = stat.Sample{0: o.Seconds.Value}
			if o.CPUSecondsBy != nil {
				o.CPUSecondsBy = stat.Sample{0: o.CPUSeconds}
			}
		}
		if o.Seconds.Blocks > 0 {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b Option) int { return cmp.Or(a.Cell.Compare(b.Cell), cmp.Compare(a.Beside, b.Beside)) })
	return all
}

// describePositive estimates the mean over blocks of a quantity that is always
// positive. The ratio of each bound to the mean is that of the geometric mean.
// Bounds by Student's t could be below 0 with two or three values.
func describePositive(s stat.Sample) stat.Estimate {
	e, one := stat.Describe(s), stat.Sample{}
	if e.Blocks < 2 {
		return e
	}
	for block := range s {
		one[block] = 1
	}
	g := stat.Ratio(s, one, paired.Rule{})
	for of, to := range map[*float64]float64{&e.Low: g.Low, &e.High: g.High, &e.Lower: g.Lower, &e.Upper: g.Upper, &e.ClaimLower: g.ClaimLower, &e.ClaimUpper: g.ClaimUpper} {
		*of = e.Value * (to / g.Value)
	}
	return e
}

// Finish returns the time in seconds in which one node ends n jobs. A slot
// takes its next job as soon as a job ends, so each round takes the mean time
// of a job. The last round takes the time of the slowest job.
func (o Option) Finish(n int) float64 {
	rounds := math.Ceil(float64(n) / float64(max(o.Cell.Concurrency, 1)))
	return max((rounds-1)*o.Seconds.Value+o.Longest, float64(n)/o.Hourly.Value*3600)
}

// ends returns how many jobs one node ends in a time, at least (see Finish).
func (o Option) ends(within time.Duration) int {
	most := int(within.Seconds()/3600*o.Hourly.Value + 1e-9)
	rounds := math.Floor((within.Seconds()-o.Longest)/o.Seconds.Value+1e-9) + 1
	return max(0, min(most, int(rounds)*o.Cell.Concurrency))
}

// A Goal is the goal of the user for a node. The zero Goal means as many jobs
// an hour as possible.
type Goal struct {
	Deadline time.Duration // of each job, also of the slowest; 0: none
	Shortest bool          // prefer the shortest job to the most jobs an hour
	// Jobs is the number of jobs that one node must complete within the time
	// Within. 0 means that there is no such goal.
	Jobs   int
	Within time.Duration
}

// Check returns an error if the goals contradict each other.
func (g Goal) Check() error {
	switch {
	case g.Deadline < 0 || g.Within < 0 || g.Jobs < 0:
		return errors.New("deadline, jobs and within: want values from 0")
	case g.Jobs > 0 && g.Within == 0:
		return errors.New("jobs needs within: the time in which the jobs have to end")
	case g.Within > 0 && g.Jobs == 0:
		return errors.New("within needs jobs: the number of jobs that have to end in this time")
	}
	return nil
}

// ErrNoOption means that no measured or predicted way to run the jobs reaches the goal.
var ErrNoOption = errors.New("no known way to run the jobs reaches the goal")

// Best selects one of the options that reach the goal. It takes the option with
// the best result and all others that are worse by at most the factor tie. best
// is the simplest of them, and ties are the rest. An option without a limit is
// simpler than one with a limit, and fewer jobs are simpler than more.
func Best(all []Option, g Goal, tie float64) (best Option, ties []Option, err error) {
	if err := g.Check(); err != nil {
		return Option{}, nil, err
	}
	fit := slices.DeleteFunc(slices.Clone(all), func(o Option) bool {
		return g.Deadline > 0 && o.Longest > g.Deadline.Seconds() || g.Jobs > 0 && o.Finish(g.Jobs) > g.Within.Seconds()
	})
	if len(fit) == 0 {
		return Option{}, nil, fmt.Errorf("%w: %s", ErrNoOption, g.describeDistance(all))
	}
	value := func(o Option) float64 { return o.Hourly.Value }
	if g.Shortest {
		value = func(o Option) float64 { return 1 / o.Seconds.Value }
	}
	top := slices.MaxFunc(fit, func(a, b Option) int { return cmp.Compare(value(a), value(b)) })
	equal := slices.DeleteFunc(fit, func(o Option) bool { return value(top)/value(o)*top.drift(o) > tie })
	slices.SortStableFunc(equal, func(a, b Option) int {
		return cmp.Or(cmp.Compare(complexity(a), complexity(b)), cmp.Compare(a.Beside, b.Beside), cmp.Compare(value(b), value(a)))
	})
	return equal[0], equal[1:], nil
}

// drift returns a factor that turns the ratio of two options' means into the
// ratio within blocks. A slow hour of the machine affects only the means of
// options that ran in that hour, but not the ratio within blocks.
func (o Option) drift(to Option) float64 {
	within := stat.Ratio(to.SecondsBy, o.SecondsBy, paired.Rule{})
	if within.Blocks == 0 {
		return 1
	}
	return within.Value * o.Seconds.Value / to.Seconds.Value
}

// complexity orders options by the number of settings that a user must make for
// them.
func complexity(o Option) int {
	switch {
	case o.Cell.CPU == 0 || o.Cell.IsRequest() && o.Cell.Strategy != "burst":
		return 0
	case o.Cell.Strategy == "" || o.Cell.Strategy == "quota":
		return 1
	}
	return 2
}

// describeDistance returns a text about how close the options come to the goal.
func (g Goal) describeDistance(all []Option) string {
	if len(all) == 0 {
		return "nothing was measured"
	}
	inTime := slices.Clone(all)
	if g.Deadline > 0 {
		inTime = slices.DeleteFunc(inTime, func(o Option) bool { return o.Longest > g.Deadline.Seconds() })
		if len(inTime) == 0 {
			o := slices.MinFunc(all, func(a, b Option) int { return cmp.Compare(a.Longest, b.Longest) })
			return fmt.Sprintf("the slowest job of the fastest way took %s s", Figure(o.Longest))
		}
	}
	o := slices.MinFunc(inTime, func(a, b Option) int { return cmp.Compare(a.Finish(g.Jobs), b.Finish(g.Jobs)) })
	text := fmt.Sprintf("one node needs %s s for %s, %d at once", Figure(o.Finish(g.Jobs)), count(g.Jobs, "job"), o.Cell.Concurrency)
	o = slices.MaxFunc(inTime, func(a, b Option) int { return cmp.Compare(a.ends(g.Within), b.ends(g.Within)) })
	if most := o.ends(g.Within); most > 0 {
		return fmt.Sprintf("%s; in %s s a node ends %s at most, so that %s would do", text, Figure(g.Within.Seconds()), count(most, "job"), count((g.Jobs+most-1)/most, "node"))
	}
	return text + "; no job ends in the time, however many nodes there are"
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
