package jobs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Log holds the facts about a job that are in the log of its ffmpeg
// container.
type Log struct {
	First, Last time.Time
	Source      string // the name of the film, from the line "Input #0"
	Lines       int
	Frames      int     // the last count of frames that ffmpeg printed; 0: none
	Speed       float64 // the last speed relative to real time; 0: none
	Threads     int     // the threads of x264, from its options; 0: not printed
	Truncated   bool    // the last line is not complete
	Closed      bool    // ffmpeg printed its closing lines
	Failure     string  // the line with which ffmpeg said that it failed; empty: none
	start, end  *mark   // of a job of the lab; nil: the log has none
}

// ErrNoLine means that a log has no line, because its container has printed
// nothing yet.
var ErrNoLine = errors.New("it has no line")

// maxLine is the length of the longest line of a log that ReadLog accepts. Container
// runtimes cut lines at 16 KiB, and in JSON each byte can become six bytes.
const maxLine = 1 << 20

var (
	inputLine   = regexp.MustCompile(`^\s*Input #0, .* from '(?:.*/)?([^'/]+)'`)
	frameCount  = regexp.MustCompile(`\bframe=\s*(\d{1,9})\b`)
	speedFactor = regexp.MustCompile(`\bspeed=\s*([0-9.]{1,12})x`)
	// closingLine matches the last progress line of ffmpeg, or the line with
	// the sizes of the streams. ffmpeg prints both after the last frame.
	closingLine = regexp.MustCompile(`\bLsize=|\bmuxing overhead\b`)
	failureLine = regexp.MustCompile(`Conversion failed!|Exiting normally, received signal \d{1,3}|Received > 3 system signals`)
	x264Threads = regexp.MustCompile(`\bthreads=(\d{1,6})\b`)
)

// ReadLog reads the log of a container. It reads the format of Docker (one JSON
// object a line), and the format of the Container Runtime Interface (time,
// stream, tag, text). It finds the lines that it needs by their content,
// because the number of lines that ffmpeg prints differs between versions. If
// the last line is incomplete, ReadLog ignores it. An error names the line.
func ReadLog(r io.Reader) (Log, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var l Log
	for number := 1; ; number++ {
		line, ends, err := readLine(in)
		if err != nil {
			return l, fmt.Errorf("read the log of a container: line %d: %w", number, err)
		}
		if line == "" && !ends {
			break
		}
		at, text, err := parseLine(line)
		if err != nil {
			if !ends {
				l.Truncated = true
				break
			}
			return l, fmt.Errorf("read the log of a container: line %d: %w", number, err)
		}
		l.note(at, text)
	}
	if l.Lines == 0 {
		return l, fmt.Errorf("read the log of a container: %w", ErrNoLine)
	}
	return l, nil
}

// readLine returns the next line without its end. It also returns whether the
// line had an end. If there is no further line, it returns "" and false.
func readLine(in *bufio.Reader) (line string, ends bool, err error) {
	var b strings.Builder
	for {
		part, err := in.ReadSlice('\n')
		b.Write(part)
		switch {
		case err == nil:
			return strings.TrimRight(b.String(), "\r\n"), true, nil
		case errors.Is(err, io.EOF):
			return b.String(), false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", false, err
		case b.Len() > maxLine:
			return "", false, fmt.Errorf("more than %d bytes", maxLine)
		}
	}
}

// parseLine returns the time and the text of a line in either format.
func parseLine(line string) (time.Time, string, error) {
	if strings.HasPrefix(line, "{") {
		var entry struct {
			Log  string    `json:"log"`
			Time time.Time `json:"time"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return time.Time{}, "", fmt.Errorf("want a JSON object with log and time: %w", err)
		}
		if entry.Time.IsZero() {
			return time.Time{}, "", errors.New("the JSON object has no time")
		}
		return entry.Time.UTC(), entry.Log, nil
	}
	stamp, rest, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return time.Time{}, "", fmt.Errorf("want a JSON object, or a time such as 2026-01-02T15:04:05.5Z and a stream: %w", err)
	}
	stream, rest, _ := strings.Cut(rest, " ")
	tag, text, tagged := strings.Cut(rest, " ")
	if stream != "stdout" && stream != "stderr" || !tagged && tag == "" {
		return time.Time{}, "", fmt.Errorf("stream %q: want stdout or stderr, a tag and the text", stream)
	}
	return at.UTC(), text, nil
}

func (l *Log) note(at time.Time, text string) {
	if l.Lines == 0 {
		l.First = at
	}
	l.Lines++
	l.Last = at
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
		l.Frames, _ = strconv.Atoi(m[len(m)-1][1])
	}
	l.Closed = l.Closed || closingLine.MatchString(text)
	if l.Failure == "" {
		l.Failure = failureLine.FindString(text)
	}
	if m := speedFactor.FindAllStringSubmatch(text, -1); m != nil {
		l.Speed, _ = strconv.ParseFloat(m[len(m)-1][1], 64)
	}
	if l.Threads == 0 && strings.Contains(text, "cabac=") {
		if m := x264Threads.FindStringSubmatch(text); m != nil {
			l.Threads, _ = strconv.Atoi(m[1])
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
	case d < time.Second && l.Lines > 1:
		return fmt.Sprintf("the log spans %v", d)
	case !l.Closed:
		return "the log has no closing line of ffmpeg: the job was killed, or the log is cut off"
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
	j, err = readRow(row, publishedColumns[:])
	if err != nil {
		return Job{}, true, fmt.Errorf("read the name of a log %q: %w", name, err)
	}
	return j, true, nil
}

// With adds the times, the source and the work from a log to the job, and
// returns the job. If the log has a fault, the job is void.
func (j Job) With(l Log) Job {
	j.In, j.Out, j.Source, j.Precision = l.First, l.Last, l.Source, time.Nanosecond
	j.Extra.Void = l.Fault()
	j.Extra.Threads = l.Threads
	if l.Frames > 0 {
		j.Extra.Work = someFrames(l.Frames)
	}
	if l.start != nil {
		j = j.withMarks(l)
	}
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
