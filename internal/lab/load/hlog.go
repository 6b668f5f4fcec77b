package load

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
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

// WriteLog writes the latencies of r in microseconds as an HdrHistogram log
// (.hlog, format 1.3), one line per second. The lines of the warm-up come first
// and have Tag=warmup. Lines with Tag=stalled have the requests that a stall of
// the client spoiled. The column of the maximum is in milliseconds.
func WriteLog(w io.Writer, r *Result) error {
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
	lines := []hlogLine{{of: func(i Interval) Packed { return i.Latency }}, {of: func(i Interval) Packed { return i.Stalled }, tag: stalledTag}}
	for n := range lines {
		lines[n].packed = newPacked(latencyUnit)
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

// An hlogLine collects the next line of an .hlog with one tag.
type hlogLine struct {
	of     func(Interval) Packed
	tag    string // in the measured part
	packed Packed
	begin  time.Duration
}

// flush writes the line for the time up to end. It omits the lines of spoiled
// requests that are empty or in the warm-up.
func (l *hlogLine) flush(w io.Writer, end, warmup time.Duration) error {
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
				float64(l.packed.Max())*float64(latencyUnit)/float64(time.Millisecond), encoded)
		}
		if err != nil {
			return err
		}
	}
	l.packed, l.begin = newPacked(latencyUnit), end
	return nil
}

// ReadLog reads an .hlog. It returns the intervals without a tag, which are the
// measured part, and their sum. Values have the unit of the log: microseconds
// if WriteLog wrote it.
func ReadLog(r io.Reader) (sum *hdrhistogram.Histogram, intervals []*hdrhistogram.Histogram, err error) {
	total := newHistogram(latencyUnit)
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
			return nil, nil, fmt.Errorf("read latency log, interval %d: %d values longer than %v", len(intervals), dropped, longest)
		}
		intervals = append(intervals, h)
	}
	if len(intervals) == 0 {
		return nil, nil, errors.New("read latency log: no untagged interval in it")
	}
	return total.Histogram, intervals, nil
}

func intendedOrActual(r *Result) string {
	if r.Loop == closedLoop.String() {
		return "actual"
	}
	return "intended"
}
