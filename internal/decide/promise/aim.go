package promise

import (
	"sort"

	"tenon.sh/tenon/internal/model/unit"
)

// Quantiles are in millionths.
const (
	one = 1_000_000
	// edge is how far a quantile may fall below 0. There the promise is a part of
	// the least past value: all of it at 0, and nothing at -edge, which no node can
	// break. So the share of broken promises is bounded whatever the room does.
	edge = one / 4
	// highest is the greatest quantile. The bound by the room of now can keep a
	// promise for ever; a quantile that rose without end would not come back.
	highest = one / 2
	// mostByHour is the most that an hour of the day may differ from the others.
	mostByHour = one / 5
)

// steps are the steps by which the quantile moves for one promise, by length. Long
// windows overlap: one dip breaks 24 promises of 24 hours, so each of them
// counts less.
var steps = [len(Hours)]int64{10_000, 5_000, 3_000}

// hourSteps are the steps of the quantile of one hour of the day, which moves once
// a day.
var hourSteps = [len(Hours)]int64{40_000, 20_000, 10_000}

// Values of Open that are no open promise. A broken promise p is broken(p).
const notMade = -1

func broken(p int64) int64 { return -2 - p }

// promised returns the promise that stands in Open, broken or not, or notMade.
func promised(p int64) int64 {
	if p < notMade {
		return -2 - p
	}
	return p
}

// An aim is a length and a level, for which it seeks the right quantile.
type aim struct {
	// Open has the promises whose windows have not ended, the oldest first, one for
	// each hour.
	Open []int64 `json:"open,omitempty"`
	// Shift is the difference of the quantile from that of the level, and ByHour
	// the further difference of windows that begin at an hour of the day (UTC).
	Shift  int64     `json:"shift,omitempty"`
	ByHour [24]int64 `json:"by_hour"`
	// Judged and Kept are as in Amount.
	Judged int64 `json:"judged,omitempty"`
	Kept   int64 `json:"kept,omitempty"`
	// Loss is the sum of the quantile losses of the promises, Plain that of a fixed
	// quantile of all past windows. The unit is a hundredth of the unit of the track.
	Loss  int64 `json:"loss,omitempty"`
	Plain int64 `json:"plain,omitempty"`
}

// target returns the share of promises of a level that may be broken.
func target(percent unit.Percent) int64 { return one / 100 * int64(100-percent) }

func bounded(shift int64, percent unit.Percent) int64 {
	return min(max(shift, -edge-target(percent)), highest-target(percent))
}

// learn moves the quantile after a promise was broken, or kept to its end: up by a
// little if it was kept, down by much if it was broken, so that the quantile
// stands still where the level is kept. It is adaptive conformal inference (Gibbs
// and Candès 2021) with one more parameter for each hour of the day, which gives each
// hour its own balance (gradient equilibrium: Angelopoulos, Jordan and Tibshirani 2025).
func (a *aim) learn(h int, percent unit.Percent, began int64, missed bool) {
	move := func(step int64) int64 {
		if missed {
			return -step * int64(percent) / 100
		}
		return step * int64(100-percent) / 100
	}
	a.Shift = bounded(a.Shift+move(steps[h]), percent)
	of := &a.ByHour[began%24]
	*of = min(max(*of+move(hourSteps[h]), -mostByHour), mostByHour)
	a.Judged++
	if !missed {
		a.Kept++
	}
	if a.Judged >= halveAt {
		a.Judged, a.Kept, a.Loss, a.Plain = a.Judged/2, a.Kept/2, a.Loss/2, a.Plain/2
	}
}

// value returns the promise for a window that begins at an hour. level is the
// present level, samples the past windows relative to theirs, in ascending order.
func (a *aim) value(percent unit.Percent, hour, level int64, samples []sample) int64 {
	q := min(max(target(percent)+a.Shift+a.ByHour[hour%24], -edge), highest)
	if q < 0 {
		return max(level+samples[0].value, 0) * (edge + q) / edge
	}
	return max(level+quantile(samples, q), 0)
}

// score adds the quantile losses of a promise, and of the same quantile of the
// windows before, by the least room that came.
func (a *aim) score(percent unit.Percent, promise, came int64, before []sample) {
	if len(before) == 0 {
		return
	}
	loss := func(q int64) int64 {
		if came < q {
			return (q - came) * int64(percent)
		}
		return (came - q) * int64(100-percent)
	}
	a.Loss += loss(promise)
	a.Plain += loss(quantile(before, target(percent)))
}

// quantile returns the quantile q of samples in ascending order. Each sample
// stands at the middle of its weight, and values between two of them are on
// a straight line, so that a small move of q is a small move of the promise.
func quantile(samples []sample, q int64) int64 {
	var total int64
	for _, s := range samples {
		total += s.weight
	}
	// Places are in half weights.
	places := make([]int64, len(samples))
	var below int64
	for i, s := range samples {
		places[i] = 2*below + s.weight
		below += s.weight
	}
	at := 2 * total * q / one
	i := sort.Search(len(places), func(i int) bool { return places[i] >= at })
	switch {
	case i == 0:
		return samples[0].value
	case i == len(samples):
		return samples[i-1].value
	}
	low, high := samples[i-1], samples[i]
	return low.value + (high.value-low.value)*(at-places[i-1])/(places[i]-places[i-1])
}
