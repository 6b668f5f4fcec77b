package jobs

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tenon.sh/tenon/internal/lab/jobs/containerlog"
)

// A Log holds the facts about a job that are in the log of its ffmpeg
// container.
type Log struct {
	containerlog.Summary
	Source     string  // the name of the film, from the line "Input #0"
	Frames     int     // the last count of frames that ffmpeg printed; 0: none
	Speed      float64 // the last speed relative to real time; 0: none
	Threads    int     // the threads of x264, from its options; 0: not printed
	Closed     bool    // ffmpeg printed its closing lines
	Failure    string  // the line with which ffmpeg said that it failed; empty: none
	start, end *mark   // of a job of the lab; nil: the log has none
}

// ErrNoLine means that a log has no line, because its container has printed
// nothing yet.
var ErrNoLine = errors.New("it has no line")

var (
	inputLine   = regexp.MustCompile(`^\s*Input #0, .* from '(?:.*/)?([^'/]+)'`)
	frameCount  = regexp.MustCompile(`(?:\b|\dx)frame=\s*(\d{1,9})\b`)
	speedFactor = regexp.MustCompile(`\bspeed=\s*([0-9.]{1,12})x`)
	// closingLine matches the last progress line of ffmpeg, or the line with
	// the sizes of the streams. ffmpeg prints both after the last frame.
	closingLine = regexp.MustCompile(`\bLsize=|\bmuxing overhead\b`)
	failureLine = regexp.MustCompile(`Conversion failed!|Exiting normally, received signal \d{1,3}|Received > 3 system signals`)
	x264Threads = regexp.MustCompile(`\bthreads=(\d{1,6})\b`)
)

// ReadLog reads the log of a container (package containerlog). It finds the lines that
// it needs by their content, because the number of lines that ffmpeg prints differs
// between versions. A log without a line is ErrNoLine. What could not be read in a log
// is in the Summary.
func ReadLog(r io.Reader) (Log, error) {
	var l Log
	l.Summary = containerlog.Read(r, l.note)
	if l.Records == 0 && l.Damaged == 0 && !l.Truncated {
		return l, fmt.Errorf("read the log of a container: %w", ErrNoLine)
	}
	return l, nil
}

func (l *Log) note(at time.Time, text string) {
	if word, m, ok := parseMark(at, text); ok {
		if word == "start" {
			l.start, l.end = &m, nil
		} else if l.start != nil {
			l.end = &m
		}
		return
	}
	if l.Source == "" {
		if m := inputLine.FindStringSubmatch(text); m != nil {
			l.Source = printable(m[1])
		}
	}
	// ffmpeg writes its progress with carriage returns, so that one line of the
	// log can contain many frame counts. The last one counts.
	if m := frameCount.FindAllStringSubmatch(text, -1); m != nil {
		l.Frames, _ = strconv.Atoi(m[len(m)-1][1]) //nolint:errcheck // digits; too many of them give the largest int
	}
	l.Closed = l.Closed || closingLine.MatchString(text)
	if l.Failure == "" {
		l.Failure = failureLine.FindString(text)
	}
	if m := speedFactor.FindAllStringSubmatch(text, -1); m != nil {
		l.Speed, _ = strconv.ParseFloat(m[len(m)-1][1], 64) //nolint:errcheck // digits with a point
	}
	if l.Threads == 0 && strings.Contains(text, "cabac=") {
		if m := x264Threads.FindStringSubmatch(text); m != nil {
			l.Threads, _ = strconv.Atoi(m[1]) //nolint:errcheck // digits; too many of them give the largest int
		}
	}
}

// Calibrates reports whether the log is of a calibration job, from which the
// lab learns how much work to give each job. A calibration job belongs to no
// run, and is in no table of the lab.
func (l Log) Calibrates() bool { return l.start != nil && l.start.number("run") == 0 }

// Fault returns the reason why the log does not show a job that did its work.
// It returns "" if the log shows such a job.
func (l Log) Fault() string {
	if fault := l.damage(); fault != "" && l.Failure == "" {
		return fault
	}
	if l.start != nil {
		return l.markFault()
	}
	switch d := l.Last.Sub(l.First); {
	case l.Failure != "":
		return fmt.Sprintf("ffmpeg says %q", l.Failure)
	case l.Source == "":
		return "the log names no input"
	case l.Truncated:
		return "the log ends within a line"
	case d < time.Second && l.Records > 1:
		return fmt.Sprintf("the log spans %v", d)
	case !l.Closed:
		return "the log has no closing line of ffmpeg: the job was killed, or the log is cut off"
	}
	return ""
}

// damage returns what makes the times or the content of the log uncertain, although
// the job may have done its work. It returns "" for a sound log.
func (l Log) damage() string {
	switch {
	case l.Records == 0 && l.Damaged == 0:
		return "no line of its log can be read"
	case l.Damaged > 0:
		return fmt.Sprintf("its log is damaged: %s (%d such lines)", l.Damage, l.Damaged)
	case l.Back > 0:
		return fmt.Sprintf("the clock of its log was set back: line %d is %v older than the one before", l.BackRecord, l.Back)
	}
	return ""
}

// linkName matches the name of a link below /var/log/containers:
// POD_NAMESPACE_CONTAINER-ID.log. The name of the pod must have the form that
// JobName returns.
var linkName = regexp.MustCompile(`^(.+)-(\d{1,6})-([0-9.]+m?)-([0-9.]+[A-Za-z]*)-(\d{1,6})-([a-z0-9]+)_([^_]+)_([a-z0-9.-]+?)-(\d{1,6})-([0-9a-f]{64})\.log$`)

// FromLink makes a job from the name of its log below /var/log/containers. ok
// is false for the log of another pod, whose name has another form. ok is also
// false for a name that is not printable text, because a table of jobs cannot
// contain it.
func FromLink(host, name string) (j Job, ok bool, err error) {
	m := linkName.FindStringSubmatch(name)
	if m == nil || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Job{}, false, nil
	}
	row := []string{host, m[1], m[2], m[3], m[4], m[5], m[6] + "_" + m[7] + "_" + m[8], m[9], m[10], "0", "0", ""}
	j, err = readRow(row, columnNames()[:published])
	if err != nil {
		return Job{}, true, fmt.Errorf("read the name of a log %.300q: %w", name, err)
	}
	return j, true, nil
}

// With adds the times, the source and the work from a log to the job, and
// returns the job. If the log has a fault, the job is void.
func (j Job) With(l Log) Job {
	if l.Records == 0 {
		return j.Without(l.damage())
	}
	j.In, j.Out, j.Source, j.Precision = l.First, l.Last, l.Source, time.Nanosecond
	j.Extra.Void = l.Fault()
	j.Extra.Unread = l.damage() != "" && l.Failure == ""
	j.Extra.Threads = l.Threads
	if l.Frames > 0 {
		j.Extra.Work = someFrames(l.Frames)
	}
	if l.start != nil {
		j = j.withMarks(l)
	}
	switch {
	case l.Back > 0 && j.Extra.Unread: // of two clocks, neither says when it ran
		j.In, j.Out, j.Precision = unknownTime, unknownTime, time.Second
	case j.Out.Before(j.In):
		j.Out = j.In
	}
	return j
}

// unknownTime stands for the begin and the end of a job of which neither is known.
var unknownTime = time.Unix(0, 0).UTC()

// Without returns the job with the reason why nothing can be read of it, not even its
// times. They are then the begin of 1970.
func (j Job) Without(reason string) Job {
	j.In, j.Out, j.Precision = unknownTime, unknownTime, time.Second
	j.Extra = Extra{Void: reason, Unread: true}
	return j
}

// JobName returns the name that the published chart gives to a job of the cell.
func (c Cell) JobName(index int) string {
	return fmt.Sprintf("%s-%d-%s-%s-%d", strings.ToLower(c.Type), c.Concurrency, formatCPU(c.CPU), formatMemory(c.Memory), index)
}

// LinkName returns the name of the link to a container's log below
// /var/log/containers. FromLink reads this name.
func LinkName(pod, namespace, container, id string) string {
	return fmt.Sprintf("%s_%s_%s-%s.log", pod, namespace, container, id)
}
