package stat

import (
	"encoding/json"
	"math"
)

// A Number is a measured value. NaN and the infinities are null in JSON.
type Number float64

// Known reports whether n is a number.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes null for a number that is not known.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads null as NaN.
func (n *Number) UnmarshalJSON(data []byte) error {
	f := math.NaN()
	if string(data) != "null" {
		if err := json.Unmarshal(data, &f); err != nil {
			return err
		}
	}
	*n = Number(f)
	return nil
}

// estimateText is an Estimate in JSON. The bounds that decide claims are not in it:
// they are valid at one look only.
type estimateText struct {
	Value      Number `json:"estimate"`
	Low        Number `json:"low"` // two-sided 95 %
	High       Number `json:"high"`
	Lower      Number `json:"lower_bound"` // one-sided 95 %
	Upper      Number `json:"upper_bound"`
	Median     Number `json:"median"`
	MedianLow  Number `json:"median_low"`
	MedianHigh Number `json:"median_high"`
	Blocks     int    `json:"blocks"`
	Dropped    int    `json:"dropped_blocks,omitempty"`
}

// MarshalJSON writes the value, its intervals and the number of blocks.
func (e Estimate) MarshalJSON() ([]byte, error) {
	return json.Marshal(estimateText{
		Number(e.Value), Number(e.Low), Number(e.High), Number(e.Lower), Number(e.Upper),
		Number(e.Median), Number(e.MedianLow), Number(e.MedianHigh), e.Blocks, e.Dropped,
	})
}

// UnmarshalJSON reads the form that MarshalJSON writes.
func (e *Estimate) UnmarshalJSON(data []byte) error {
	var t estimateText
	if err := json.Unmarshal(data, &t); err != nil {
		return err
	}
	*e = Estimate{
		Value: float64(t.Value), Low: float64(t.Low), High: float64(t.High), Lower: float64(t.Lower), Upper: float64(t.Upper),
		Median: float64(t.Median), MedianLow: float64(t.MedianLow), MedianHigh: float64(t.MedianHigh), Blocks: t.Blocks, Dropped: t.Dropped,
	}
	return nil
}

// IsVague reports whether an interval of ratios is so wide that it is useless to
// print its ends.
func (e Estimate) IsVague() bool {
	const widest = 50
	return e.Blocks > 1 && !(e.Low > 0 && e.High/e.Low <= widest)
}
