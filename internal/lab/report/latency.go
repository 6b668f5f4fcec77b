package report

import "github.com/HdrHistogram/hdrhistogram-go"

// LatencyOf summarises a histogram of values in microseconds.
func LatencyOf(h *hdrhistogram.Histogram) Latency {
	if h == nil || h.TotalCount() == 0 {
		return Latency{}
	}
	at := func(p float64) float64 { return float64(h.ValueAtPercentile(p)) }
	return Latency{
		P50: at(50), P75: at(75), P90: at(90), P99: at(99), P999: at(99.9),
		Max: float64(h.Max()), Mean: h.Mean(),
	}
}
