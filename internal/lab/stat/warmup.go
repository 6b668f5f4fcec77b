package stat

import (
	"math"
	"slices"
)

const (
	warmupMin   = 10   // a series needs at least this number of values
	trendErrors = 3.0  // a trend counts only above this number of standard errors
	trendShare  = 0.05 // and only above this share of the mean
)

// Warmup finds where a series, such as the mean latency of each 100 ms, becomes
// stationary. The result cut is the number of leading values to discard. ok is false
// if the remaining values do not look stationary. A longer warm-up may then help.
//
// The cut minimises the squared standard error of the mean of the remaining
// values (MSER-5: White, Cobb and Spratt, 2000). Warmup searches for it in the
// first half of the series. Before the search, it clips the values to five
// robust deviations around the median of the second half. So a single stall
// does not look like a warm-up. It then compares the two halves of the
// remaining values. If they differ significantly and by more than 5 %, the
// series still drifts.
func Warmup(series []float64) (cut int, ok bool) {
	if len(series) < warmupMin {
		return len(series), false
	}
	clipped := clip(series)
	size := min(max(len(series)/20, 1), 5)
	batches := batchMeans(clipped, size)
	best, at := 0.0, 0
	for d := 0; d <= len(batches)/2; d++ {
		rest := batches[d:]
		_, sd := meanSD(rest)
		if e := sd * sd / float64(len(rest)); d == 0 || e < best {
			best, at = e, d
		}
	}
	rest := batches[at:]
	if len(rest) < 4 {
		return at * size, false
	}
	a, sdA := meanSD(rest[:len(rest)/2])
	b, sdB := meanSD(rest[len(rest)/2:])
	half := float64(len(rest) / 2)
	diff := (a - b) * (a - b)
	mean := (a + b) / 2
	drifts := diff > trendErrors*trendErrors*(sdA*sdA+sdB*sdB)/half && diff > trendShare*trendShare*mean*mean
	return at * size, !drifts
}

// clip bounds all values, so that a single stall has little effect. The bounds
// come from the second half of the series.
func clip(series []float64) []float64 {
	settled := slices.Sorted(slices.Values(series[len(series)/2:]))
	median := settled[len(settled)/2]
	deviations := make([]float64, len(settled))
	for i, v := range settled {
		deviations[i] = max(v-median, median-v)
	}
	slices.Sort(deviations)
	// The factor 1.4826 turns the median absolute deviation of normal values
	// into their standard deviation.
	reach := 5 * 1.4826 * deviations[len(deviations)/2]
	if reach == 0 {
		return series
	}
	out := make([]float64, len(series))
	for i, v := range series {
		out[i] = min(max(v, median-reach), median+reach)
	}
	return out
}

func batchMeans(values []float64, size int) []float64 {
	var means []float64
	for chunk := range slices.Chunk(values, size) {
		if len(chunk) == size {
			mean, _ := meanSD(chunk)
			means = append(means, mean)
		}
	}
	return means
}

func meanSD(values []float64) (mean, sd float64) {
	for _, v := range values {
		mean += v
	}
	mean /= float64(len(values))
	for _, v := range values {
		sd += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(sd / float64(max(len(values)-1, 1)))
}
