package jobs

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// MarkScript is a part of a shell script that a container of the lab runs. Its
// function mark prints a line with the counters of the container's cgroup, on
// cgroup v2 and on v1. ReadLog reads these lines. The script calls
//
//	mark start due=SECONDS KEY=VALUE…
//	mark end status=NUMBER
//
// with the keys strategy, block, run, threads and source. due is the time at
// which the job had to begin, in seconds since 1970.
const MarkScript = `mark() {
	echo "` + markWord + `" "$@" cpu $(cat /sys/fs/cgroup/cpu.stat /sys/fs/cgroup/cpuacct/cpuacct.usage /sys/fs/cgroup/cpu/cpu.stat 2>/dev/null) \
		memory $(cat /sys/fs/cgroup/memory.peak /sys/fs/cgroup/memory/memory.max_usage_in_bytes 2>/dev/null) >&2
}
`

// markWord is the first word of the lines that a job of the lab prints.
const markWord = "tenon-lab"

// maxLateness is the largest delay with which a job may begin. A job that
// begins later is void, because it did not run beside the other jobs.
const maxLateness = 500 * time.Millisecond

// A mark is the beginning or the end of a job of the lab, read from a line of
// its log.
type mark struct {
	at   time.Time
	said map[string]string // key=value

	GroupCounters
}

// GroupCounters are the counters of a container's cgroup that MarkScript prints. A
// counter is missing if the cgroup does not have it.
type GroupCounters struct {
	Usage         node.Maybe[time.Duration] // CPU time
	ThrottledTime node.Maybe[time.Duration]
	Periods       node.Maybe[int64] // nr_periods
	Throttled     node.Maybe[int64] // nr_throttled
	Peak          node.Maybe[unit.Bytes]
}

// ParseCounters reads the counters from a line that MarkScript printed. ok is
// false for any other line.
func ParseCounters(line string) (c GroupCounters, ok bool) {
	_, m, ok := parseMark(time.Time{}, line)
	return m.GroupCounters, ok
}

// parseMark reads a line of a log. If the line is no mark, ok is false.
func parseMark(at time.Time, text string) (word string, m mark, ok bool) {
	f := strings.Fields(text)
	if len(f) < 2 || f[0] != markWord || f[1] != "start" && f[1] != "end" {
		return "", m, false
	}
	m = mark{at: at, said: map[string]string{}}
	word, f = f[1], f[2:]
	for len(f) > 0 && f[0] != "cpu" {
		if key, value, has := strings.Cut(f[0], "="); has {
			m.said[key] = value
		}
		f = f[1:]
	}
	if len(f) > 0 {
		f = f[1:] // cpu
	}
	for len(f) > 0 {
		key := f[0]
		if n, err := strconv.ParseInt(key, 10, 64); err == nil { // cpuacct.usage is a number alone
			m.Usage = node.Some(time.Duration(n))
			f = f[1:]
			continue
		}
		f = f[1:]
		if len(f) == 0 {
			break
		}
		n, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			continue
		}
		f = f[1:]
		switch key {
		case "usage_usec":
			m.Usage = node.Some(time.Duration(n) * time.Microsecond)
		case "throttled_usec":
			m.ThrottledTime = node.Some(time.Duration(n) * time.Microsecond)
		case "throttled_time":
			m.ThrottledTime = node.Some(time.Duration(n))
		case "nr_periods":
			m.Periods = node.Some(n)
		case "nr_throttled":
			m.Throttled = node.Some(n)
		case "memory":
			m.Peak = node.Some(unit.Bytes(n))
		}
	}
	return word, m, true
}

// number returns a value of the mark. It returns 0 if the mark does not have
// the value.
func (m mark) number(key string) int {
	n, err := strconv.Atoi(m.said[key])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// lateness returns how late the job began.
func (m mark) lateness() (time.Duration, bool) {
	due, err := strconv.ParseInt(m.said["due"], 10, 64)
	if err != nil || due <= 0 || due > 1<<40 {
		return 0, false
	}
	return m.at.Sub(time.Unix(due, 0)), true
}

// markFault returns the reason why a job of the lab did not do its work. It
// returns "" if the job did its work.
func (l Log) markFault() string {
	switch {
	case l.end == nil:
		return "its log has no end: it was killed"
	case l.end.said["status"] != "0":
		return fmt.Sprintf("it ended with status %.20s", l.end.said["status"])
	}
	if late, known := l.start.lateness(); known && late > maxLateness {
		return fmt.Sprintf("it began %.1f s after the others", late.Seconds())
	}
	return ""
}

// withMarks returns the job with the values from the marks in its log.
func (j Job) withMarks(l Log) Job {
	s := l.start
	j.In = s.at
	j.Extra.Strategy, j.Extra.Block, j.Extra.Run, j.Extra.Threads = s.said["strategy"], s.number("block"), s.number("run"), s.number("threads")
	if j.Source == "" {
		j.Source = s.said["source"]
	}
	if late, known := s.lateness(); known {
		j.Extra.LateSeconds = node.Some(max(late.Seconds(), 0))
	}
	e := l.end
	if e == nil {
		return j
	}
	j.Out = e.at
	j.Extra.CPUSeconds, j.Extra.ThrottledSeconds = secondsBetween(s.Usage, e.Usage), secondsBetween(s.ThrottledTime, e.ThrottledTime)
	j.Extra.Periods, j.Extra.ThrottledPeriods = countBetween(s.Periods, e.Periods), countBetween(s.Throttled, e.Throttled)
	j.Extra.PeakMemory = e.Peak
	return j
}

// countBetween returns how much a counter has grown between two readings.
func countBetween(from, to node.Maybe[int64]) node.Maybe[int64] {
	a, ok1 := from.Value()
	b, ok2 := to.Value()
	if !ok1 || !ok2 || b < a {
		return node.Maybe[int64]{}
	}
	return node.Some(b - a)
}

// secondsBetween returns how many seconds a counter has grown between two
// readings.
func secondsBetween(from, to node.Maybe[time.Duration]) node.Maybe[float64] {
	a, ok1 := from.Value()
	b, ok2 := to.Value()
	if !ok1 || !ok2 || b < a { // a counter that fell was not that of one cgroup
		return node.Maybe[float64]{}
	}
	return node.Some((b - a).Seconds())
}
