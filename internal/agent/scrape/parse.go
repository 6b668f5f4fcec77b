package scrape

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"tenon.sh/tenon/internal/cluster/fetch"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// maxLine and maxHistogram are the longest line of an answer, and the most bytes
	// of its lines that belong to the histogram.
	maxLine      = 16 << 10
	maxHistogram = 256 << 10
	maxBuckets   = 128
	// maxCount is the largest number of requests that a float64 counts exactly.
	maxCount = 1 << 53
)

// parse adds up the series of a histogram in the text format of Prometheus. It
// parses only the lines of this histogram: an answer may have thousands of others.
func parse(r io.Reader, want node.Series) (node.Requests, error) {
	lines, err := linesOf(r, want.Family+"_bucket")
	if err != nil {
		return node.Requests{}, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(lines)
	if err != nil {
		return node.Requests{}, fetch.Fault(node.TroubleDamaged)
	}
	sums, series := map[float64]float64{}, map[float64]int{}
	for _, m := range families[want.Family+"_bucket"].GetMetric() {
		bound, counts, err := bucketOf(m, want)
		if err != nil {
			return node.Requests{}, err
		}
		if counts {
			sums[bound] += m.GetUntyped().GetValue()
			series[bound]++
		}
	}
	return histogramOf(sums, series, want.Unit)
}

// linesOf returns the lines of an answer that have series with a name.
func linesOf(r io.Reader, name string) (*bytes.Buffer, error) {
	var lines bytes.Buffer
	prefix := []byte(name + "{")
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if !bytes.HasPrefix(s.Bytes(), prefix) {
			continue
		}
		if lines.Len()+len(s.Bytes()) >= maxHistogram {
			return nil, fetch.Fault(node.TroubleTooLarge)
		}
		lines.Write(s.Bytes())
		lines.WriteByte('\n')
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return nil, fetch.Fault(node.TroubleTooLarge)
	}
	return &lines, s.Err()
}

// bucketOf returns the upper bound of a bucket, and whether it has the labels that
// the objective asks for.
func bucketOf(m *dto.Metric, want node.Series) (bound float64, counts bool, err error) {
	if bound, err = strconv.ParseFloat(labelOf(m, "le"), 64); err != nil {
		return 0, false, fetch.Fault(node.TroubleDamaged)
	}
	counts = !slices.ContainsFunc(want.Labels[:], func(l node.Label) bool { return l.Name != "" && labelOf(m, l.Name) != l.Value })
	v := m.GetUntyped().GetValue()
	if math.IsNaN(bound) || math.IsNaN(v) || v < 0 || v > maxCount || v != math.Trunc(v) {
		return 0, false, fetch.Fault(node.TroubleDamaged)
	}
	return bound, counts, nil
}

// labelOf returns the value of a label. In Prometheus, an absent label is empty.
func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// histogramOf returns the requests by bucket. sums are the cumulative counts by
// upper bound, each the sum of so many series.
func histogramOf(sums map[float64]float64, series map[float64]int, unit time.Duration) (node.Requests, error) {
	damaged := fetch.Fault(node.TroubleDamaged)
	bounds := slices.Sorted(maps.Keys(sums))
	switch {
	case len(bounds) == 0:
		return node.Requests{}, fetch.Fault(node.TroubleAbsent)
	case len(bounds) > maxBuckets:
		return node.Requests{}, fetch.Fault(node.TroubleTooLarge)
	case len(bounds) == 1 || !math.IsInf(bounds[len(bounds)-1], 1):
		return node.Requests{}, damaged
	}
	var r node.Requests
	before := 0.0
	for i, bound := range bounds {
		if series[bound] != series[bounds[0]] || sums[bound] < before || sums[bound] > maxCount {
			return node.Requests{}, damaged
		}
		r.Counts = append(r.Counts, uint64(sums[bound]-before))
		before = sums[bound]
		if i == len(bounds)-1 {
			break
		}
		end := bound * float64(unit)
		if end < 0 || end > math.MaxInt64/2 || i > 0 && time.Duration(math.Round(end)) <= r.Bounds[i-1] {
			return node.Requests{}, damaged
		}
		r.Bounds = append(r.Bounds, time.Duration(math.Round(end)))
	}
	return r, nil
}
