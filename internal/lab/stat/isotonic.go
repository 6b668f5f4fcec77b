package stat

// A Stretch is a part of an isotonic fit in which the fit has one value. From
// and To are the first and the last x of the part. Value is the mean of the y
// of the part.
type Stretch struct {
	From, To float64
	Value    float64
	Count    int
}

// Falling fits a function of x to the values y, by least squares. The function
// never rises (pool adjacent violators, Ayer et al. 1955). The values of x must
// be in ascending order. Values with equal x are pooled.
func Falling(x, y []float64) []Stretch {
	var levels []Stretch
	for i := range x {
		if n := len(levels); n > 0 && levels[n-1].To == x[i] && levels[n-1].From == x[i] {
			levels[n-1] = pool(levels[n-1], Stretch{x[i], x[i], y[i], 1})
		} else {
			levels = append(levels, Stretch{x[i], x[i], y[i], 1})
		}
		if i+1 < len(x) && x[i+1] == x[i] {
			continue // compare only once all values at x are pooled
		}
		for n := len(levels); n > 1 && levels[n-2].Value <= levels[n-1].Value; n = len(levels) {
			levels = append(levels[:n-2], pool(levels[n-2], levels[n-1]))
		}
	}
	return levels
}

func pool(a, b Stretch) Stretch {
	n := a.Count + b.Count
	return Stretch{a.From, b.To, (a.Value*float64(a.Count) + b.Value*float64(b.Count)) / float64(n), n}
}

// A Cliff is the largest step of a function that never rises.
type Cliff struct {
	Before, After float64 // the x on both sides of the step
	High, Low     float64 // the levels on both sides
	Whole         float64 // the difference between the first and the last level
}

// CliffOf returns the largest step of a fit. ok is false if the fit has only
// one level.
func CliffOf(levels []Stretch) (c Cliff, ok bool) {
	for i := 1; i < len(levels); i++ {
		a, b := levels[i-1], levels[i]
		if a.Value-b.Value > c.High-c.Low {
			c = Cliff{Before: a.To, After: b.From, High: a.Value, Low: b.Value}
			ok = true
		}
	}
	if ok {
		c.Whole = levels[0].Value - levels[len(levels)-1].Value
	}
	return c, ok
}
