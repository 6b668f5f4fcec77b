package main

import (
	"math"
	"slices"
)

// Windows are all windows of one length of a node. Each begins at an hour.
type windows struct {
	hours  int
	hourly []float64 // the least room of each hour; NaN: a hole
	least  []float64 // the least room of the window that begins at each hour
	past   [][]float64
}

const (
	// memory is the number of past windows that a rival knows: a week.
	memory = 7 * 24
	// fewest is the number of past windows that a rival needs.
	fewest = 24
)

func windowsOf(hourly []float64, hours int) windows {
	w := windows{hours: hours, hourly: hourly, least: make([]float64, len(hourly)), past: make([][]float64, len(hourly))}
	for i := range hourly {
		w.least[i] = math.NaN()
		if i+hours <= len(hourly) {
			w.least[i] = least(hourly[i : i+hours])
		}
	}
	for t := range hourly {
		w.past[t] = known(w.least[max(t-hours-memory+1, 0):max(t-hours+1, 0)])
	}
	return w
}

// least returns the least value, or NaN if one is not known.
func least(values []float64) float64 {
	low := math.Inf(1)
	for _, v := range values {
		if math.IsNaN(v) {
			return v
		}
		low = math.Min(low, v)
	}
	return low
}

// known returns the values that are known, in ascending order.
func known(values []float64) []float64 {
	out := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(out)
	return out
}

// quantile returns the quantile q of sorted values. Below 0 it is a part of the
// least value, down to nothing at -lowest.
func quantile(sorted []float64, q float64) float64 {
	if q < 0 {
		return sorted[0] * (1 + q/lowest)
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (sorted[i+1]-sorted[i])*(at-float64(i))
}

const lowest, highest = 0.25, 0.5

func clamp(q float64) float64 { return min(max(q, -lowest), highest) }

// A rival promises room for the window that begins at each hour, from what ended
// before it. NaN: no promise. broken is the share of promises that may be
// broken.
type rival struct {
	name    string
	promise func(w windows, broken float64) []float64
}

var rivals = []rival{
	{"history", history},
	{"fixed", func(w windows, broken float64) []float64 {
		return adaptive(w, broken, 1, w.week, func(int) float64 { return 0.02 })
	}},
	{"decaying", func(w windows, broken float64) []float64 {
		return adaptive(w, broken, 1, w.week, func(n int) float64 { return 0.2 * math.Pow(float64(n), -0.6) })
	}},
	{"aggregated", aggregated},
	{"by-hour", func(w windows, broken float64) []float64 {
		return adaptive(w, broken, 24, w.hourOfDay, func(int) float64 { return 0.02 })
	}},
}

// history is the percentile of the last week, as in the reports on savings: it
// does not know how long a job runs.
func history(w windows, broken float64) []float64 {
	out := make([]float64, len(w.hourly))
	for t := range out {
		out[t] = math.NaN()
		if past := known(w.hourly[max(t-memory, 0):t]); len(past) >= fewest {
			out[t] = quantile(past, broken)
		}
	}
	return out
}

func (w windows) week(t int) []float64 { return w.past[t] }

// hourOfDay returns the windows of the last two weeks that began at this hour of
// the day, or an hour beside it.
func (w windows) hourOfDay(t int) []float64 {
	var near []float64
	for d := 24; d <= 14*24; d += 24 {
		for s := t - d - 1; s <= t-d+1; s++ {
			if s >= 0 && s+w.hours <= t {
				near = append(near, w.least[s])
			}
		}
	}
	return known(near)
}

// adaptive is adaptive conformal inference: the quantile moves up after a promise
// that was kept, and down after one that was broken. With several groups, each
// hour of the day has a quantile of its own.
func adaptive(w windows, broken float64, groups int, past func(t int) []float64, step func(n int) float64) []float64 {
	out := make([]float64, len(w.hourly))
	q, n := slices.Repeat([]float64{broken}, groups), make([]int, groups)
	for t := range out {
		if s := t - w.hours; s >= 0 && !math.IsNaN(out[s]) && !math.IsNaN(w.least[s]) {
			g := s % groups
			n[g]++
			q[g] = clamp(q[g] + step(n[g])*(broken-missed(w.least[s], out[s])))
		}
		out[t] = math.NaN()
		if p := past(t); len(p) >= min(fewest, memory/groups) {
			out[t] = quantile(p, q[t%groups])
		}
	}
	return out
}

func missed(came, promised float64) float64 {
	if came < promised {
		return 1
	}
	return 0
}

// aggregated runs several steps beside each other, and weighs their quantiles by
// their past quantile losses (Zaffran and others 2022; Gibbs and Candès 2022).
func aggregated(w windows, broken float64) []float64 {
	steps := [...]float64{0.002, 0.008, 0.03, 0.1}
	const forget, eager = 0.99, 30
	out := make([]float64, len(w.hourly))
	var q, loss [len(steps)]float64
	asked := make([][len(steps)]float64, len(out))
	for k := range q {
		q[k] = broken
	}
	for t := range out {
		if s := t - w.hours; s >= 0 && !math.IsNaN(out[s]) && !math.IsNaN(w.least[s]) {
			rank := rankOf(w.past[s], w.least[s])
			for k, step := range steps {
				miss := missed(w.least[s], quantile(w.past[s], asked[s][k]))
				off := rank - asked[s][k]
				loss[k] = forget*loss[k] + max(broken*off, (broken-1)*off)
				q[k] = clamp(q[k] + step*(broken-miss))
			}
		}
		asked[t], out[t] = q, math.NaN()
		if len(w.past[t]) < fewest {
			continue
		}
		var sum, all float64
		for k := range q {
			weight := math.Exp(-eager * (loss[k] - slices.Min(loss[:])))
			sum, all = sum+weight*q[k], all+weight
		}
		out[t] = quantile(w.past[t], sum/all)
	}
	return out
}

// rankOf returns the share of sorted values below v.
func rankOf(sorted []float64, v float64) float64 {
	i, _ := slices.BinarySearch(sorted, v)
	return float64(i) / float64(max(len(sorted), 1))
}
