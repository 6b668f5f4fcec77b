package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// FromLines reads the latencies that a load generator prints, until r ends. A
// line begins with a latency: a number of microseconds, or a duration with its
// unit such as 1.25ms. Other lines are ignored. The time of a latency is the
// time at which its line arrives. The warm-up begins with the first line.
func FromLines(r io.Reader, warmup, length time.Duration, now func() time.Time) (*Result, error) {
	total := warmup + length
	var t thread
	started := time.Time{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		latency, ok := parseLatency(lines.Text())
		if !ok {
			continue
		}
		at := now()
		if started.IsZero() {
			started = at
		}
		if at.Sub(started) < total {
			t.record.due = append(t.record.due, int64(at.Sub(started)))
			t.record.latency = append(t.record.latency, uint32(min(latency, longest)/latencyUnit))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("load: read latencies: %w", err)
	}
	if started.IsZero() {
		return nil, errors.New("load: no line of the command begins with a latency, such as 850 (in µs) or 1.25ms")
	}
	result := &Result{Schema: 1, Loop: "command", Limits: DefaultLimits, Started: started, Intervals: intervals([]*thread{&t}, closedLoop, total)}
	if err := result.Discard(warmup); err != nil {
		return nil, err
	}
	return result, nil
}

func parseLatency(line string) (time.Duration, bool) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return 0, false
	}
	if us, err := strconv.ParseFloat(words[0], 64); err == nil && us >= 0 && us < 1e15 {
		return time.Duration(us * float64(time.Microsecond)), true
	}
	d, err := time.ParseDuration(words[0])
	return d, err == nil && d >= 0
}
