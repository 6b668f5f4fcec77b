package chart

import "math"

// An Axis maps the values from Low to High to the pixels from Begin to End. The
// scale is linear. With Log, it is logarithmic.
type Axis struct {
	Low, High  float64
	Begin, End float64
	Log        bool
}

// At returns the pixel of v.
func (a Axis) At(v float64) float64 {
	lo, hi := a.Low, a.High
	if a.Log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	return a.Begin + (v-lo)/(hi-lo)*(a.End-a.Begin)
}

// clamp returns the pixel of v. If v lies outside the axis, clamp returns the
// nearer end, and side is −1 (below the axis) or 1 (above it).
func (a Axis) clamp(v float64) (px float64, side int) {
	switch {
	case v < a.Low:
		return a.Begin, -1
	case v > a.High:
		return a.End, 1
	}
	return a.At(v), 0
}

// Ticks returns about n round values on the axis, or fewer. On a log axis,
// these are powers of ten and some of their multiples. If the axis is too short
// for three of them, the values have equal distances.
func (a Axis) Ticks(n int) []float64 {
	if !a.Log {
		return a.steps(n)
	}
	var all []float64
	for _, mantissas := range [][]float64{{1, 1.5, 2, 3, 5, 7}, {1, 2, 5}, {1, 3}, {1}} {
		all = all[:0]
		for e := math.Floor(math.Log10(a.Low)); e <= math.Ceil(math.Log10(a.High)); e++ {
			for _, m := range mantissas {
				if v := m * math.Pow(10, e); v >= a.Low*(1-1e-9) && v <= a.High*(1+1e-9) {
					all = append(all, v)
				}
			}
		}
		if len(all) <= n {
			break
		}
	}
	if len(all) < 3 {
		return a.steps(n)
	}
	return all
}

// steps returns about n values with equal distances, or fewer.
func (a Axis) steps(n int) []float64 {
	var all []float64
	step := niceStep((a.High - a.Low) / float64(n))
	for i := math.Ceil(a.Low/step - 1e-9); i*step <= a.High+step*1e-9; i++ {
		all = append(all, i*step+0) // + 0 turns −0 into 0
	}
	return all
}

// niceStep rounds a step up to 1, 2 or 5 times a power of ten.
func niceStep(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 5} {
		if step <= m*power*(1+1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// Range returns a range that is a little wider than the values need. On a log
// axis, the range is wider by a factor.
func Range(values []float64, log bool) (lo, hi float64, ok bool) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 {
			continue
		}
		lo, hi = min(lo, v), max(hi, v)
	}
	if lo > hi {
		return 0, 0, false
	}
	if log {
		room := max(math.Pow(hi/lo, 0.05), 1.02)
		lo, hi = lo/room, hi*room
	} else {
		room := max((hi-lo)*0.05, 1e-9+math.Abs(hi)*0.02)
		lo, hi = lo-room, hi+room
	}
	// A range near the limits of float64 cannot be drawn.
	ok = !math.IsInf(hi, 0) && lo < hi && (!log || lo > 1e-300 && !math.IsInf(hi/lo, 0))
	return lo, hi, ok
}

// Frame draws two axes with their grid, and a label below them.
func Frame(d *Drawing, x, y Axis, xText, yText func(float64) string, label string) {
	for _, v := range y.Ticks(6) {
		d.Line(x.Begin, y.At(v), x.End, y.At(v), "grid")
		d.Text(x.Begin-8, y.At(v)+4, "tick end", yText(v))
	}
	for _, v := range x.Ticks(10) {
		d.Line(x.At(v), y.End, x.At(v), y.Begin, "grid")
		d.Text(x.At(v), y.Begin+18, "tick middle", xText(v))
	}
	d.Line(x.Begin, y.Begin, x.End, y.Begin, "axis")
	d.Text((x.Begin+x.End)/2, d.height-6, "label middle", label)
}
