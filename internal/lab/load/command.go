package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"tenon.sh/tenon/internal/lab/load/fate"
	"tenon.sh/tenon/internal/lab/load/lines"
)

// FromLines reads the latencies that a load generator prints, until r ends. A
// line holds one latency and nothing else: a number of microseconds, or a duration
// with its unit such as 1.25ms. Lines that do not begin with a number are ignored.
// A line that begins with a number and holds more, and a latency that is longer than
// the run, are failures of kind fate.Line, so they void the run. The summary of a
// known load generator is an error. The time of a latency is the time at which its
// line arrives. The warm-up begins with the first line.
func FromLines(r io.Reader, warmup, length time.Duration, now func() time.Time) (*Result, error) {
	total := warmup + length
	var t thread
	started, mixed := time.Time{}, ""
	in := bufio.NewScanner(r)
	for in.Scan() {
		line := in.Text()
		if tool := lines.Tool(line); tool != "" && (started.IsZero() || now().Sub(started) < total) {
			return nil, fmt.Errorf("load: the command prints the summary of %s: want %s", tool, lines.Want)
		}
		latency, kind := lines.Parse(line)
		if kind == lines.Mixed && mixed == "" {
			mixed = line
		}
		if kind == lines.Other || kind == lines.Mixed && started.IsZero() {
			continue
		}
		at := now()
		if started.IsZero() {
			started = at
		}
		if at.Sub(started) >= total {
			continue
		}
		value := uint32(min(latency, longest) / LatencyUnit)
		switch {
		case kind == lines.Mixed:
			value = t.record.fate(fate.Cause{Kind: fate.Line, Reason: "a number stands first, and more follows", Begun: true, Bytes: int64(len(line)), FirstLine: fate.FirstLine([]byte(line))})
		case latency > total:
			value = t.record.fate(fate.Cause{Kind: fate.Line, Reason: fmt.Sprintf("the value is longer than the %v of the run", total), Begun: true, Bytes: int64(len(line)), FirstLine: fate.FirstLine([]byte(line))})
		}
		t.record.due = append(t.record.due, int64(at.Sub(started)))
		t.record.latency = append(t.record.latency, value)
	}
	switch err := in.Err(); {
	case err != nil:
		return nil, fmt.Errorf("load: read latencies: %w", err)
	case started.IsZero() && mixed != "":
		return nil, fmt.Errorf("load: no line of the command holds a latency; the line %q begins with a number and holds more: want %s", fate.FirstLine([]byte(mixed)), lines.Want)
	case started.IsZero():
		return nil, errors.New("load: no line of the command holds a latency: want " + lines.Want)
	}
	result := &Result{Schema: 1, Loop: "command", Limits: DefaultLimits, Started: started}
	result.Intervals, result.Causes = intervals([]*thread{&t}, closedLoop, total)
	if err := result.Discard(warmup); err != nil {
		return nil, err
	}
	return result, nil
}
