// Package hlog writes and reads the latencies of a load in the log format of
// HdrHistogram (.hlog), which other tools read, too.
package hlog

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tenon.sh/tenon/internal/lab/load"
)

// The tags of lines of an .hlog. Requests in tagged lines do not count for
// Result.Latency: they were in the warm-up, or a stall of the client spoiled
// them. By default the tools of HdrHistogram ignore tagged lines.
const (
	warmupTag  = "warmup"
	stalledTag = "stalled"
)

// logLength is the length of an interval in an .hlog.
const logLength = time.Second

// Write writes the latencies of r in microseconds as an HdrHistogram log
// (.hlog, format 1.3), one line per second. The lines of the warm-up come first
// and have Tag=warmup. Lines with Tag=stalled have the requests that a stall of
// the client spoiled. The column of the maximum is in milliseconds.
func Write(w io.Writer, r *load.Result) error {
	log := hdrhistogram.NewHistogramLogWriter(w)
	if err := errors.Join(
		log.OutputComment("[Latency in microseconds from the "+intendedOrActual(r)+" send, by "+r.URL+"]"),
		log.OutputLogFormatVersion(),
		log.OutputStartTime(r.Started.UnixMilli()),
		log.OutputBaseTime(r.Started.UnixMilli()),
		log.OutputLegend(),
	); err != nil {
		return fmt.Errorf("write latency log: %w", err)
	}
	lines := []line{{of: func(i load.Interval) load.Packed { return i.Latency }}, {of: func(i load.Interval) load.Packed { return i.Stalled }, tag: stalledTag}}
	for n := range lines {
		lines[n].packed = load.NewPacked()
	}
	for n, i := range r.Intervals {
		end := i.At + i.Length
		for k := range lines {
			l := &lines[k]
			if from := l.of(i).PackedHistogram; from != nil {
				l.packed.Merge(from)
			}
			if end-l.begin >= logLength || end == r.Warmup || n == len(r.Intervals)-1 {
				if err := l.flush(w, end, r.Warmup); err != nil {
					return fmt.Errorf("write latency log: %w", err)
				}
			}
		}
	}
	return nil
}

// A line collects the next line of an .hlog with one tag.
type line struct {
	of     func(load.Interval) load.Packed
	tag    string // in the measured part
	packed load.Packed
	begin  time.Duration
}

// flush writes the line for the time up to end. It omits the lines of spoiled
// requests that are empty or in the warm-up.
func (l *line) flush(w io.Writer, end, warmup time.Duration) error {
	tag := l.tag
	skip := tag != "" && (l.packed.TotalCount() == 0 || end <= warmup)
	if end <= warmup {
		tag = warmupTag
	}
	if tag != "" {
		tag = "Tag=" + tag + ","
	}
	if !skip {
		encoded, err := l.packed.Encode()
		if err == nil {
			_, err = fmt.Fprintf(w, "%s%.3f,%.3f,%.3f,%s\n", tag, l.begin.Seconds(), (end - l.begin).Seconds(),
				float64(l.packed.Max())*float64(load.LatencyUnit)/float64(time.Millisecond), encoded)
		}
		if err != nil {
			return err
		}
	}
	l.packed, l.begin = load.NewPacked(), end
	return nil
}

// Read reads an .hlog. It returns the intervals without a tag, which are the
// measured part, and their sum. Values have the unit of the log: microseconds
// if Write wrote it.
func Read(r io.Reader) (sum *hdrhistogram.Histogram, intervals []*hdrhistogram.Histogram, err error) {
	total := load.NewHistogram()
	log := hdrhistogram.NewHistogramLogReader(r)
	for {
		h, err := log.NextIntervalHistogram()
		if err != nil {
			return nil, nil, fmt.Errorf("read latency log, interval %d: %w", len(intervals), err)
		}
		if h == nil {
			break
		}
		if h.Tag() != "" {
			continue
		}
		if dropped := total.Merge(h); dropped > 0 {
			return nil, nil, fmt.Errorf("read latency log, interval %d: %d values longer than %v", len(intervals), dropped, time.Duration(total.HighestTrackableValue())*load.LatencyUnit)
		}
		intervals = append(intervals, h)
	}
	if len(intervals) == 0 {
		return nil, nil, errors.New("read latency log: no untagged interval in it")
	}
	return total.Histogram, intervals, nil
}

func intendedOrActual(r *load.Result) string {
	if r.Closed() {
		return "actual"
	}
	return "intended"
}
