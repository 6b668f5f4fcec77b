package load

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// warmupTag marks the lines of an .hlog that are not part of the result. By
// default the tools of HdrHistogram ignore tagged lines.
const warmupTag = "warmup"

// logLength is the length of an interval in an .hlog.
const logLength = time.Second

// WriteLog writes the latencies of r in microseconds as an HdrHistogram log
// (.hlog, format 1.3), one line per second. The lines of the warm-up come first
// and have Tag=warmup. The column of the maximum is in milliseconds.
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
	line := newPacked(latencyUnit)
	var begin, end time.Duration
	flush := func() error {
		if begin == end {
			return nil
		}
		encoded, err := line.Encode()
		if err == nil {
			tag := ""
			if end <= r.Warmup {
				tag = "Tag=" + warmupTag + ","
			}
			_, err = fmt.Fprintf(w, "%s%.3f,%.3f,%.3f,%s\n", tag, begin.Seconds(), (end - begin).Seconds(),
				float64(line.Max())*float64(latencyUnit)/float64(time.Millisecond), encoded)
		}
		line = newPacked(latencyUnit)
		begin = end
		return err
	}
	for _, i := range r.Intervals {
		if i.Latency.PackedHistogram != nil {
			line.Merge(i.Latency.PackedHistogram)
		}
		end = i.At + i.Length
		if end-begin >= logLength || end == r.Warmup {
			if err := flush(); err != nil {
				return fmt.Errorf("write latency log: %w", err)
			}
		}
	}
	if err := flush(); err != nil {
		return fmt.Errorf("write latency log: %w", err)
	}
	return nil
}

// ReadLog reads an .hlog. It returns the intervals without a tag, in order, and
// their sum; these are the measured part. Values have the unit of the log,
// which is microseconds in a log of WriteLog.
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
