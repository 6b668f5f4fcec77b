package wrk

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/load"
)

// A Result is the complete output of one run of wrk. Its latencies come from
// a closed loop, and wrk has corrected them.
type Result struct {
	Command     []string      `json:"command,omitempty"`
	Output      string        `json:"output"` // as printed
	URL         string        `json:"url"`
	Length      time.Duration `json:"length_ns"` // as wrk measured it
	Threads     int           `json:"threads"`
	Connections int           `json:"connections"`

	// ThreadLatency and ThreadRate are wrk's "Thread Stats".
	ThreadLatency Stats `json:"thread_latency_us"`
	ThreadRate    Stats `json:"thread_requests_per_second"`
	// Latency has P50, P75, P90 and P99 from "Latency Distribution", and Max
	// and Mean from "Thread Stats". P999 is 0, because wrk does not print it.
	Latency load.Latency `json:"latency"`

	Requests     int64        `json:"requests"`
	Bytes        float64      `json:"bytes"`
	RequestRate  float64      `json:"requests_per_second"`
	TransferRate float64      `json:"bytes_per_second"`
	SocketErrors SocketErrors `json:"socket_errors"`
	NonSuccess   int64        `json:"non_2xx_or_3xx_responses"`

	// Missing lists the lines of wrk that the output has not, by their first words.
	// The figures of such a line are 0 and not known. Parse refuses such an output.
	Missing []string `json:"missing,omitempty"`
	// Void lists the reasons why the run must not be used. It is empty if the
	// run is valid.
	Void []string `json:"void,omitempty"`
	// Hints explain socket errors and how to prevent them on this machine.
	Hints []string `json:"hints,omitempty"`
}

// Stats is one line of wrk's "Thread Stats", which covers all threads.
type Stats struct {
	Mean   float64 `json:"mean"`
	Stdev  float64 `json:"stdev"`
	Max    float64 `json:"max"`
	Within float64 `json:"within_stdev_percent"` // samples within one Stdev of Mean
}

// SocketErrors is wrk's "Socket errors" line.
type SocketErrors struct {
	Connect int64 `json:"connect"`
	Read    int64 `json:"read"`
	Write   int64 `json:"write"`
	Timeout int64 `json:"timeout"`
}

// The lines of wrk 4's output (wrk.c, main and the print_… functions).
var (
	runningLine  = regexp.MustCompile(`^Running \S+ test @ (\S+)$`)
	threadsLine  = regexp.MustCompile(`^(\d+) threads and (\d+) connections$`)
	statsLine    = regexp.MustCompile(`^(Latency|Req/Sec)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)%$`)
	quantileLine = regexp.MustCompile(`^(50|75|90|99)%\s+(\S+)$`)
	totalsLine   = regexp.MustCompile(`^(\d+) requests in (\S+), (\S+) read$`)
	errorsLine   = regexp.MustCompile(`^Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)$`)
	statusLine   = regexp.MustCompile(`^Non-2xx or 3xx responses: (\d+)$`)
	rateLine     = regexp.MustCompile(`^(Requests|Transfer)/sec:\s+(\S+)$`)
)

// Parse parses the output of wrk 4 with --latency. It fails if the output is
// incomplete or does not come from wrk. It sets Void. The method Explain sets Hints.
func Parse(output string) (*Result, error) {
	p := newParser(output)
	p.finish()
	for _, part := range p.result.Missing {
		p.errs = append(p.errs, fmt.Errorf("no line with %q", part))
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, fmt.Errorf("wrk output: %w", err)
	}
	return p.result, nil
}

type parser struct {
	result  *Result
	lines   map[string]int // how often each part was seen
	failure string         // the line with which wrk ends if it cannot connect at all
	errs    []error
}

// newParser reads the lines of an output.
func newParser(output string) *parser {
	p := &parser{result: &Result{Output: output}, lines: map[string]int{}}
	// Some documents print the last two lines as one.
	for line := range strings.Lines(strings.ReplaceAll(output, "Transfer/sec:", "\nTransfer/sec:")) {
		p.line(strings.TrimSpace(line))
	}
	return p
}

// finish computes what follows from all lines.
func (p *parser) finish() {
	r := p.result
	for _, part := range parts {
		if p.lines[part] == 0 {
			r.Missing = append(r.Missing, part)
		}
	}
	r.Latency.Mean, r.Latency.Max = r.ThreadLatency.Mean, r.ThreadLatency.Max
	r.judge()
}

// line parses one line of the output. It ignores unknown lines, such as the
// output of a script.
func (p *parser) line(line string) {
	r := p.result
	if m := runningLine.FindStringSubmatch(line); m != nil {
		p.lines["Running"]++
		r.URL = m[1]
	} else if m := threadsLine.FindStringSubmatch(line); m != nil {
		p.lines["threads"]++
		r.Threads, r.Connections = int(p.count(m[1])), int(p.count(m[2]))
	} else if m := statsLine.FindStringSubmatch(line); m != nil {
		p.lines[m[1]]++
		if m[1] == "Latency" {
			r.ThreadLatency = Stats{p.micros(m[2]), p.micros(m[3]), p.micros(m[4]), p.percent(m[5])}
		} else {
			r.ThreadRate = Stats{p.metric(m[2]), p.metric(m[3]), p.metric(m[4]), p.percent(m[5])}
		}
	} else if m := quantileLine.FindStringSubmatch(line); m != nil {
		p.lines[m[1]+"%"]++
		quantiles := map[string]*float64{"50": &r.Latency.P50, "75": &r.Latency.P75, "90": &r.Latency.P90, "99": &r.Latency.P99}
		*quantiles[m[1]] = p.micros(m[2])
	} else if m := totalsLine.FindStringSubmatch(line); m != nil {
		p.lines["requests"]++
		r.Requests, r.Length, r.Bytes = p.count(m[1]), time.Duration(p.micros(m[2])*1e3), p.bytes(m[3])
	} else if m := errorsLine.FindStringSubmatch(line); m != nil {
		r.SocketErrors = SocketErrors{p.count(m[1]), p.count(m[2]), p.count(m[3]), p.count(m[4])}
	} else if m := statusLine.FindStringSubmatch(line); m != nil {
		r.NonSuccess = p.count(m[1])
	} else if m := rateLine.FindStringSubmatch(line); m != nil {
		p.lines[m[1]+"/sec"]++
		if m[1] == "Requests" {
			r.RequestRate = p.number(m[2], nil)
		} else {
			r.TransferRate = p.bytes(m[2])
		}
	} else if strings.HasPrefix(line, "unable to connect to ") {
		p.failure = line
	}
}

// The units of wrk (units.c): times in us, ms, s, m, h; numbers and bytes with
// metric and binary prefixes.
var (
	timeUnits   = map[string]float64{"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6}
	metricUnits = map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
	binaryUnits = map[string]float64{"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
)

func (p *parser) micros(s string) float64 { return p.number(s, timeUnits) }
func (p *parser) metric(s string) float64 { return p.number(s, metricUnits) }
func (p *parser) bytes(s string) float64  { return p.number(s, binaryUnits) }

// percent parses a percentage. wrk prints "-nan" if it has no samples.
func (p *parser) percent(s string) float64 {
	if strings.Trim(s, "-") == "nan" {
		return 0
	}
	return p.number(s, nil)
}

func (p *parser) count(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("number %.80q: want a whole number below 2^63", s))
	}
	return n
}

// number parses a number and its unit. If units is nil, the number has no unit.
func (p *parser) number(s string, units map[string]float64) float64 {
	end := strings.LastIndexAny(s, "0123456789.") + 1
	v, err := strconv.ParseFloat(s[:end], 64)
	scale, known := 1.0, s[end:] == ""
	if units != nil {
		scale, known = units[s[end:]]
	}
	if v *= scale; err != nil || !known || math.IsInf(v, 0) || v < 0 || v > 1e15 {
		p.errs = append(p.errs, fmt.Errorf("number %.80q: not one that wrk prints", s))
		return 0
	}
	return v
}

// judge computes Void.
func (r *Result) judge() {
	void := func(format string, args ...any) { r.Void = append(r.Void, fmt.Sprintf(format, args...)) }
	e := r.SocketErrors
	if e.Connect > 0 {
		void("socket errors: connect %d: wrk could not establish connections: %d of %d are missing, so the load was not the one asked for", e.Connect, e.Connect, r.Connections)
	}
	if e.Read > 0 {
		void("socket errors: read %d: the service closed connections before its answer was complete", e.Read)
	}
	if e.Write > 0 {
		void("socket errors: write %d: the service closed connections before the request was sent", e.Write)
	}
	if e.Timeout > 0 {
		void("socket errors: timeout %d: requests had no answer within wrk's time-out (2 s by default)", e.Timeout)
	}
	if r.NonSuccess > 0 {
		void("%d of %d answers had a status other than 2xx or 3xx", r.NonSuccess, r.Requests)
	}
	if r.Requests == 0 {
		void("no request was answered")
	}
}
