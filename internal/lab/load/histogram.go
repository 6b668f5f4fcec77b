package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// LatencyUnit is the unit of the latencies in all histograms.
const LatencyUnit = time.Microsecond

const (
	lagUnit = time.Nanosecond
	longest = time.Minute // a longer value is recorded as this one
	digits  = 3
)

// A Histogram is an HdrHistogram. Its text and JSON form is the compressed V2
// encoding of HdrHistogram in base64.
type Histogram struct{ *hdrhistogram.Histogram }

// NewHistogram returns an empty histogram of latencies.
func NewHistogram() Histogram { return newHistogram(LatencyUnit) }

func newHistogram(unit time.Duration) Histogram {
	return Histogram{hdrhistogram.New(1, int64(longest/unit), digits)}
}

// MarshalText implements encoding.TextMarshaler.
func (h Histogram) MarshalText() ([]byte, error) {
	if h.Histogram == nil {
		return nil, nil
	}
	return h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Histogram) UnmarshalText(text []byte) (err error) {
	h.Histogram = nil
	if len(text) > 0 {
		h.Histogram, err = hdrhistogram.Decode(text)
	}
	return err
}

// Packed is the sparse form of a Histogram. It takes some hundred bytes, while
// a Histogram takes 140 KiB. Both have the same text and JSON form.
type Packed struct{ *hdrhistogram.PackedHistogram }

// NewPacked returns an empty histogram of latencies.
func NewPacked() Packed { return newPacked(LatencyUnit) }

func newPacked(unit time.Duration) Packed {
	return Packed{hdrhistogram.NewPacked(1, int64(longest/unit), digits)}
}

// MarshalText implements encoding.TextMarshaler.
func (p Packed) MarshalText() ([]byte, error) {
	if p.PackedHistogram == nil {
		return nil, nil
	}
	return p.Encode()
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Packed) UnmarshalText(text []byte) (err error) {
	p.PackedHistogram = nil
	if len(text) > 0 {
		p.PackedHistogram, err = hdrhistogram.DecodePacked(text)
	}
	return err
}

// mergeInto adds p to sum. p may be empty.
func (p Packed) mergeInto(sum Histogram) {
	if p.PackedHistogram != nil {
		p.MergeInto(sum.Histogram)
	}
}

// record adds one value. It limits the value to the range of the histogram.
func (p Packed) record(v int64) {
	// This cannot fail: the value is in range, and a count cannot overflow.
	_ = p.RecordValue(min(max(v, 1), p.HighestTrackableValue()))
}

// LatencyOf summarises a histogram of values in the given unit. If it is nil or
// empty, all figures are 0.
func LatencyOf(h *hdrhistogram.Histogram, unit time.Duration) Latency {
	if h == nil || h.TotalCount() == 0 {
		return Latency{}
	}
	scale := float64(unit) / float64(time.Microsecond)
	at := func(percentile float64) float64 { return float64(h.ValueAtPercentile(percentile)) * scale }
	return Latency{
		P50: at(50), P75: at(75), P90: at(90), P99: at(99), P999: at(99.9),
		Max: float64(h.Max()) * scale, Mean: h.Mean() * scale,
	}
}
