package work

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Transcode is one ffmpeg process of the batch work. It transcodes Input to
// H.264 and AAC in a loop and discards the result.
type Transcode struct {
	Input   string
	Threads int
	// ReadRate limits how fast the input is read, in seconds of media per
	// second. 0 means no limit. A limit needs ffmpeg 5.0.
	ReadRate float64
	// Period is the time between progress reports. 0 means ffmpeg's default of
	// 0.5 s. Another value needs ffmpeg 4.4.
	Period time.Duration
	// Report is the file to which ffmpeg writes its progress. It is empty for
	// standard output.
	Report string
}

// Args returns ffmpeg's arguments.
func (t Transcode) Args() []string {
	threads, progress := strconv.Itoa(t.Threads), "pipe:1"
	if t.Report != "" {
		progress = "file:" + t.Report
	}
	args := []string{"-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-nostats", "-progress", progress}
	if t.Period > 0 {
		args = append(args, "-stats_period", strconv.FormatFloat(t.Period.Seconds(), 'f', -1, 64))
	}
	if t.ReadRate > 0 {
		args = append(args, "-readrate", strconv.FormatFloat(t.ReadRate, 'f', 4, 64))
	}
	return append(args,
		"-stream_loop", "-1", "-threads", threads, "-i", t.Input,
		"-map", "0:v:0", "-map", "0:a:0?",
		"-c:v", "libx264", "-preset", "veryfast", "-threads", threads, "-c:a", "aac",
		"-f", "mpegts", "/dev/null")
}

// A Mark is the progress of a transcode at one time.
type Mark struct {
	At     time.Time
	Frames float64       // encoded so far
	Media  time.Duration // encoded so far, as time in the film
}

// Marks is the series of progress reports of a transcode. It is safe for
// concurrent use.
type Marks struct {
	mu     sync.Mutex
	marks  []Mark
	before Mark // progress of the processes that have ended
}

// Follow reads ffmpeg's progress reports until r ends. A report is a block of
// key=value lines. It ends with progress=continue or progress=end (ffmpeg(1),
// -progress).
func (m *Marks) Follow(r io.Reader, now func() time.Time) error {
	var at Mark
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if at.read(lines.Text()) {
			at.At = now()
			m.Add(at)
		}
	}
	return lines.Err()
}

// read takes over what a line of a report says. It returns true if the line ends
// the report.
func (m *Mark) read(line string) (whole bool) {
	key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
	value = strings.TrimSpace(value)
	switch key {
	case "frame":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
			m.Frames = float64(n)
		}
	case "out_time_us":
		if us, err := strconv.ParseInt(value, 10, 64); err == nil && us >= 0 && us < 1<<50 {
			m.Media = time.Duration(us) * time.Microsecond
		}
	case "progress":
		return true
	}
	return false
}

// Add adds a report.
func (m *Marks) Add(at Mark) {
	m.mu.Lock()
	at.Frames, at.Media = at.Frames+m.before.Frames, at.Media+m.before.Media
	m.marks = append(m.marks, at)
	m.mu.Unlock()
}

// Restart begins the reports of a new process. Their counts begin at 0, so
// Marks adds them to the progress of the earlier processes.
func (m *Marks) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.marks); n > 0 {
		m.before = m.marks[n-1]
	}
}

// Started reports whether a frame has been encoded.
func (m *Marks) Started() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.marks) > 0 && m.marks[len(m.marks)-1].Frames > 0
}

// ProgressBetween returns the number of frames, and the media time, that were
// encoded between two times. Between two reports it interpolates. After the
// last report it assumes the rate between the last two.
func (m *Marks) ProgressBetween(from, to time.Time) (frames float64, media time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, b := at(m.marks, from), at(m.marks, to)
	return max(b.Frames-a.Frames, 0), max(b.Media-a.Media, 0)
}

func at(marks []Mark, t time.Time) Mark {
	n := len(marks)
	if n == 0 || t.Before(marks[0].At) {
		return Mark{At: t}
	}
	i := 1
	for i < n && marks[i].At.Before(t) {
		i++
	}
	if n == 1 {
		return marks[0]
	}
	i = min(i, n-1)
	a, b := marks[i-1], marks[i]
	span := b.At.Sub(a.At)
	if span <= 0 {
		return b
	}
	// Extrapolate by one report at most, because the process may hang.
	f := min(float64(t.Sub(a.At))/float64(span), 2)
	return Mark{
		At:     t,
		Frames: a.Frames + f*(b.Frames-a.Frames),
		Media:  a.Media + time.Duration(f*float64(b.Media-a.Media)),
	}
}
