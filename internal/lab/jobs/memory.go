package jobs

import (
	"cmp"
	"math"
	"slices"

	"tenon.sh/tenon/internal/decide/trials/paired"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/model/unit"
)

// memoryMargin is the largest relative change of a job's time that does not
// count as an effect of memory.
const memoryMargin = 0.02

// A Verdict is the conclusion of a measurement about an effect.
type Verdict string

// The verdicts.
const (
	// Faster and Slower mean that the whole interval is on one side of "no
	// effect".
	Faster Verdict = "faster"
	Slower Verdict = "slower"
	// Equal means that the whole interval lies within the margin.
	Equal Verdict = "equal"
	// NotShown means that the interval contains "no effect", but also effects
	// that are larger than the margin.
	NotShown Verdict = "no effect shown"
)

// A MemoryEffect compares the times of jobs in two cases: jobs that had the
// most memory, and jobs that had the least. All other conditions are the same.
type MemoryEffect struct {
	Least      unit.Bytes `json:"least_bytes"` // over all conditions, as Most
	Most       unit.Bytes `json:"most_bytes"`
	Conditions int        `json:"conditions"` // that ran with several amounts of memory
	// Ratio is the time with the most memory divided by the time with the least,
	// as a mean over blocks. Without blocks, each condition counts as a block.
	Ratio   stat.Estimate `json:"seconds_ratio"`
	Verdict Verdict       `json:"verdict"`
}

// MemoryEffectOf compares options that differ only in memory. If there are no
// such options, ok is false.
func MemoryEffectOf(all []Option) (e MemoryEffect, ok bool) {
	groups := map[Cell][]Option{}
	for _, o := range all {
		if o.Cell.Memory > 0 {
			c := o.Cell
			c.Memory = 0
			groups[c] = append(groups[c], o)
		}
	}
	cells := make([]Cell, 0, len(groups))
	for c, group := range groups {
		if len(group) > 1 {
			cells = append(cells, c)
		}
	}
	slices.SortFunc(cells, Cell.Compare)
	logs := map[int][]float64{} // by block
	for i, c := range cells {
		byMemory := func(a, b Option) int { return cmp.Compare(a.Cell.Memory, b.Cell.Memory) }
		least, most := slices.MinFunc(groups[c], byMemory), slices.MaxFunc(groups[c], byMemory)
		if e.Conditions == 0 || least.Cell.Memory < e.Least {
			e.Least = least.Cell.Memory
		}
		e.Most = max(e.Most, most.Cell.Memory)
		e.Conditions++
		for block, of := range most.SecondsBy {
			to, both := least.SecondsBy[block]
			if !both {
				continue
			}
			if !least.ranInBlocks() {
				block = -i
			}
			logs[block] = append(logs[block], math.Log(of/to))
		}
	}
	if e.Conditions == 0 {
		return e, false
	}
	ratios, one := stat.Sample{}, stat.Sample{}
	for block, values := range logs {
		ratios[block], one[block] = math.Exp(mean(values)), 1
	}
	e.Ratio = stat.Ratio(ratios, one, paired.Rule{})
	e.Verdict = verdictOf(e.Ratio, memoryMargin)
	return e, true
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// ranInBlocks reports whether the option ran in the blocks of an experiment.
func (o Option) ranInBlocks() bool { return len(o.Jobs) > 0 && o.Jobs[0].Extra.Block > 0 }

// verdictOf judges the interval of a ratio of times.
func verdictOf(ratio stat.Estimate, margin float64) Verdict {
	switch {
	case ratio.High < 1:
		return Faster
	case ratio.Low > 1:
		return Slower
	case ratio.Low > 1-margin && ratio.High < 1+margin:
		return Equal
	}
	return NotShown
}
