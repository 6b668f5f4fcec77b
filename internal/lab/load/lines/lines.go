// Package lines reads what a load command prints: one latency in a line.
package lines

import (
	"strconv"
	"strings"
	"time"
)

// A Kind is the kind of content of a line.
type Kind int

// The kinds of lines.
const (
	Other   Kind = iota // no number stands first: the line counts for nothing
	Latency             // one latency and nothing else
	Mixed               // a number stands first, and more follows: nothing says what the number is
)

// Want says what a line must hold.
const Want = "one latency and nothing else in a line, such as 850 (in µs) or 1.25ms"

// longest bounds what counts as a duration, and keeps it within an int64.
const longest = 100 * 365 * 24 * time.Hour

// Parse says what a line holds. A latency is a number of microseconds, or a duration
// with its unit. It is 0 unless the line holds a latency.
func Parse(line string) (time.Duration, Kind) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return 0, Other
	}
	d, ok := parse(words[0])
	switch {
	case !ok:
		return 0, Other
	case len(words) > 1:
		return 0, Mixed
	}
	return d, Latency
}

func parse(word string) (time.Duration, bool) {
	if us, err := strconv.ParseFloat(word, 64); err == nil {
		if !(us >= 0) { // negative, or not a number
			return 0, false
		}
		return time.Duration(min(us*float64(time.Microsecond), float64(longest))), true
	}
	d, err := time.ParseDuration(word)
	return d, err == nil && d >= 0
}

// summaries has a line from the summary of each load generator that people know. The
// line begins and contains these texts.
var summaries = []struct{ tool, begins, contains string }{
	{"wrk", "Running ", " test @ "},
	{"wrk", "Thread Stats", "+/- Stdev"},
	{"hey or oha", "Response time histogram:", ""},
	{"hey or oha", "Status code distribution:", ""},
	{"ab", "This is ApacheBench", ""},
	{"vegeta", "Latencies", "[min, mean"},
	{"k6", "http_req_duration", "avg="},
	{"redis-benchmark", "latency summary (msec):", ""},
	{"memtier_benchmark", "ALL STATS", ""},
	{"pgbench", "latency average = ", ""},
}

// Tool returns the name of the load generator from whose summary the line is, or "".
func Tool(line string) string {
	line = strings.TrimSpace(line)
	for _, s := range summaries {
		if strings.HasPrefix(line, s.begins) && strings.Contains(line, s.contains) {
			return s.tool
		}
	}
	return ""
}
