package jobs

import (
	"math"
	"slices"

	"tenon.sh/tenon/internal/lab/stat"
)

// A Cause is a variable that may explain the cost of jobs.
type Cause struct {
	Name string // of the variable
	stat.Explanation
}

// causeMargin is the lead with which a variable is named as the cause. The lead is
// the difference between its adjusted share of the variance and the next largest one.
const causeMargin = 0.20

// Costs are the CPU seconds of the waves, and all variables that may explain
// them.
type Costs struct {
	// Measured is false if the cost was computed as limit × duration, as for
	// published tables. This is correct only for jobs that used their whole
	// limit.
	Measured bool
	Waves    []Wave
	// Causes is sorted by the adjusted share, beginning with the largest.
	Causes []Cause
	// Named is the variable that leads the others by causeMargin, or "".
	Named string
	// Fit is the cost as a function of the CPUs that the jobs on a node
	// requested together. The function is fitted so that it never rises. Cliff
	// is its largest step. HasCliff is false if there is no step.
	Fit      []stat.Stretch
	Cliff    stat.Cliff
	HasCliff bool
}

// CostsOf finds out which variable best explains the CPU seconds of a job.
// Without a measured cost, it leaves out jobs that have no CPU limit.
func CostsOf(waves []Wave) Costs {
	c := Costs{Measured: true}
	for _, w := range waves {
		seconds, measured := w.CPUSeconds()
		if !(seconds > 0) {
			continue // it is not known, or the counter was not read
		}
		c.Measured = c.Measured && measured
		c.Waves = append(c.Waves, w)
	}
	c.Measured = c.Measured && len(c.Waves) > 0
	slices.SortStableFunc(c.Waves, func(a, b Wave) int {
		switch d := roundTwentieth(a.Demand()) - roundTwentieth(b.Demand()); {
		case d < 0:
			return -1
		case d > 0:
			return 1
		}
		return 0
	})
	variables := []struct {
		name string
		of   func(Wave) float64
	}{
		{"CPUs asked for on the node", func(w Wave) float64 { return roundTwentieth(w.Demand()) }},
		{"limit of a job", func(w Wave) float64 { return w.Cell.CPU.Cores() }},
		{"jobs beside each other", func(w Wave) float64 { return roundTwentieth(w.Beside) }},
		{"memory of a job", func(w Wave) float64 { return float64(w.Cell.Memory) }},
	}
	if len(c.Waves) == 0 {
		return c
	}
	logs, demand, seconds := c.columns()
	for _, v := range variables {
		groups := make([]float64, len(c.Waves))
		for i, w := range c.Waves {
			groups[i] = v.of(w)
		}
		c.Causes = append(c.Causes, Cause{v.name, stat.Explain(logs, groups)})
	}
	slices.SortStableFunc(c.Causes, func(a, b Cause) int {
		switch x, y := known(a.Adjusted), known(b.Adjusted); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	if len(c.Causes) > 1 && known(c.Causes[0].Adjusted)-known(c.Causes[1].Adjusted) >= causeMargin {
		c.Named = c.Causes[0].Name
	}
	c.Fit = stat.Falling(demand, seconds)
	c.Cliff, c.HasCliff = stat.CliffOf(c.Fit)
	return c
}

func (c Costs) columns() (logs, demand, seconds []float64) {
	for _, w := range c.Waves {
		s, _ := w.CPUSeconds()
		logs, demand, seconds = append(logs, math.Log(s)), append(demand, roundTwentieth(w.Demand())), append(seconds, s)
	}
	return logs, demand, seconds
}

// roundTwentieth rounds a number of CPUs or of jobs to a twentieth. So equal
// conditions stay equal, although the jobs started at slightly different times.
func roundTwentieth(v float64) float64 { return math.Round(v*20) / 20 }

func known(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}
