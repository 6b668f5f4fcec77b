// Package containerlog reads the logs of containers as container runtimes write them:
// the JSON lines of Docker, and the lines of the Container Runtime Interface. It joins
// lines that the runtime has cut, and goes on after a damaged line.
package containerlog

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// maxRecord is the length of the longest record. Container runtimes cut lines at 16
// KiB, and in JSON each byte can become six bytes.
const maxRecord = 1 << 20

// maxJoined bounds the length of a line that is joined from records. headOfJoined and
// tailOfJoined are kept of a longer one: ffmpeg writes all its progress as one line.
const (
	maxJoined    = 1 << 20
	headOfJoined = 16 << 10
	tailOfJoined = 64 << 10
)

// clockTolerance is the largest step back in time between two records that is no step
// of the clock. The two streams of a container are written by two threads.
const clockTolerance = time.Second

// A Summary says what was in a log.
type Summary struct {
	Records     int // that could be read
	First, Last time.Time
	// Back is the largest step back in time, and BackRecord is the number of the
	// record after it. Back is 0 if there is none of more than a second.
	Back       time.Duration
	BackRecord int
	// Damaged is the number of records that could not be read. Damage says what is
	// wrong with the first of them.
	Damaged int
	Damage  string
	// Truncated is true if the log ends within a record, or could do so: a record of
	// the Container Runtime Interface is whole only with its LF. Its text is left out.
	Truncated bool
}

// A record is one line of a log.
type record struct {
	at     time.Time
	stream string
	text   string
	part   bool // the next record of the stream continues the text
	closed bool // it is whole without an LF: a JSON object
}

// Read reads a log, and calls line for each line that the container printed, with the
// time of its last record. It never fails: the Summary says what could not be read. A
// damaged record also ends the line that its stream has begun, or that of each stream if
// its stream is not known: what comes next may not be the rest of this line. The begin of
// such a line is left out.
func Read(r io.Reader, line func(at time.Time, text string)) Summary {
	in := bufio.NewReaderSize(r, 64<<10)
	s := Summary{}
	parts := streams{}
	damaged := func(number int, stream string, err error) {
		parts.drop(stream)
		if s.Damaged++; s.Damaged == 1 {
			s.Damage = fmt.Sprintf("line %d: %v", number, err)
		}
	}
	windows := false // the file has line ends of Windows
	for number := 1; ; number++ {
		text, ends, err := readLine(in)
		if err != nil {
			damaged(number, "", err)
			if !errors.Is(err, errLong) {
				break
			}
			continue
		}
		if text == "" && !ends {
			break
		}
		if s.Records == 0 { // the first record that can be read decides
			windows = strings.HasSuffix(text, "\r")
		}
		if windows {
			text = strings.TrimSuffix(text, "\r")
		}
		rec, err := parse(text)
		if !ends && (err != nil || !rec.closed) {
			s.Truncated = true
			parts.drop(rec.stream)
			break
		}
		if err != nil {
			damaged(number, rec.stream, err)
			continue
		}
		s.note(rec.at, number)
		p := parts[rec.stream]
		if p == nil {
			p = &joined{}
			parts[rec.stream] = p
		}
		p.add(rec)
		if !rec.part {
			line(p.at, p.take())
		}
	}
	// A process may end without the end of its last line.
	for _, p := range parts.open() {
		line(p.at, p.take())
	}
	return s
}

// streams has the line that each stream of a container has begun.
type streams map[string]*joined

// drop forgets the line that a stream has begun, or that of each stream if it is "".
func (s streams) drop(stream string) {
	if stream == "" {
		clear(s)
	}
	delete(s, stream)
}

// open returns the lines that have no end, in the order of time.
func (s streams) open() []*joined {
	var open []*joined
	for _, p := range s {
		if len(p.text) > 0 {
			open = append(open, p)
		}
	}
	slices.SortFunc(open, func(a, b *joined) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(string(a.text), string(b.text))) })
	return open
}

func (s *Summary) note(at time.Time, number int) {
	if s.Records++; s.Records == 1 {
		s.First = at
	} else if back := s.Last.Sub(at); back > max(clockTolerance, s.Back) {
		s.Back, s.BackRecord = back, number
	}
	s.Last = at
}

// joined collects the records of one line of a stream.
type joined struct {
	at   time.Time
	text []byte
}

func (j *joined) add(r record) {
	j.at, j.text = r.at, append(j.text, r.text...)
	if len(j.text) > maxJoined {
		j.text = append(j.text[:headOfJoined], j.text[len(j.text)-tailOfJoined:]...)
	}
}

func (j *joined) take() string {
	text := string(j.text)
	j.text = j.text[:0]
	return text
}

var errLong = fmt.Errorf("it has more than %d bytes", maxRecord)

// readLine returns the next line without its LF. It also returns whether the line
// had an end. If there is no further line, it returns "" and false. It reads a line
// that is too long up to its end, and returns errLong.
func readLine(in *bufio.Reader) (line string, ends bool, err error) {
	var b strings.Builder
	for size := 0; ; {
		part, err := in.ReadSlice('\n')
		if size += len(part); size <= maxRecord {
			b.Write(part)
		}
		long := size > maxRecord
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && !errors.Is(err, io.EOF):
			return "", false, err
		case long:
			return "", false, errLong
		case err == nil:
			return strings.TrimSuffix(b.String(), "\n"), true, nil
		default:
			return b.String(), false, nil
		}
	}
}

// parse reads a record in either format. The record of an error has its stream, if this
// is known. A line whose time is damaged can hold parts of two records, so its stream is
// not known.
func parse(line string) (record, error) {
	if strings.HasPrefix(line, "{") {
		return parseDocker(line)
	}
	stamp, rest, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil && strings.Contains(stamp, "\x00") {
		return record{}, errors.New("it has NUL bytes where its time should be, as after a loss of power")
	}
	if err != nil {
		return record{}, fmt.Errorf("it begins with %.40q: want a JSON object, or a time such as 2026-01-02T15:04:05.5Z and a stream", stamp)
	}
	stream, rest, _ := strings.Cut(rest, " ")
	tag, text, tagged := strings.Cut(rest, " ")
	rec := record{at: at.UTC()}
	if stream == "stdout" || stream == "stderr" {
		rec.stream = stream
	}
	if rec.stream == "" || !tagged && tag == "" {
		return rec, fmt.Errorf("stream %.40q: want stdout or stderr, a tag and the text", stream)
	}
	first, _, _ := strings.Cut(tag, ":") // more tags may follow
	if rec.part = first == "P"; !rec.part {
		text = strings.TrimSuffix(text, "\r")
	}
	rec.text = text
	return rec, nil
}

func parseDocker(line string) (record, error) {
	var entry struct {
		Log    string    `json:"log"`
		Stream string    `json:"stream"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal([]byte(line), &entry); err != nil {
		return record{}, fmt.Errorf("it begins with %.40q: want a JSON object with log and time", line)
	}
	if entry.Time.IsZero() {
		return record{stream: entry.Stream}, errors.New("the JSON object has no time")
	}
	text, whole := strings.CutSuffix(entry.Log, "\n")
	return record{at: entry.Time.UTC(), stream: entry.Stream, text: text, part: !whole, closed: true}, nil
}
