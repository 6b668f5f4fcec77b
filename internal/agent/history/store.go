package history

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

var (
	// ErrPast means that a minute is not later than the last one of its day: the clock
	// was set back. It is not written, and leaves a hole.
	ErrPast = errors.New("the minute is not later than the last one of its day")
	// ErrFull means that the files of this day alone have the size that the store
	// may have. The day ends with a hole.
	ErrFull = errors.New("the history of this day has the size that all days may have")
)

// A Store appends minutes. It is not safe for concurrent use.
type Store struct {
	dir  string
	most int64

	day  *day
	file *os.File
	name fileName
	size int64 // of the file
	left int   // rows of the last minute that had no room in it
}

// Open opens the history in a directory, which it makes. The files may have most
// bytes in all; the oldest are removed first.
func Open(dir string, most unit.Bytes) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}
	return &Store{dir: dir, most: int64(most)}, nil
}

// Append writes a minute. After an error the minute is not in the history, and
// the next one may be.
func (s *Store) Append(m Minute) error {
	number := m.At / minutesOfDay
	if m.At < 0 || number > maxDay {
		return ErrPast
	}
	if s.day == nil || number != s.day.Day {
		if err := s.open(number); err != nil {
			return err
		}
	}
	if m.At <= s.day.at {
		return ErrPast
	}
	frame, left, err := s.day.appendFrame(nil, &m)
	if errors.Is(err, errManyRows) {
		next := fileName{day: number, part: s.name.part + 1}
		if err := errors.Join(s.Close(), s.begin(next)); err != nil {
			return err
		}
		frame, left, err = s.day.appendFrame(nil, &m)
	}
	if err != nil {
		// The state of the day may be ahead of the file, so it is read again.
		return errors.Join(fmt.Errorf("write the history: %w", err), s.Close())
	}
	if err := s.room(int64(len(frame))); err != nil {
		return errors.Join(err, s.Close())
	}
	if _, err := s.file.Write(frame); err != nil {
		return errors.Join(fmt.Errorf("write the history: %w", err), s.Close())
	}
	s.size, s.left = s.size+int64(len(frame)), left
	return nil
}

// Left returns the number of rows that Append has left out of the last minute, because
// they were too many for a minute.
func (s *Store) Left() int { return s.left }

// Close closes the file. The store can be used again.
func (s *Store) Close() error {
	f := s.file
	s.file, s.day, s.size = nil, nil, 0
	if f == nil {
		return nil
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close the history: %w", err)
	}
	return nil
}

// open opens the file for a day: the last one of this day, if it has the columns
// of this version, or a new one. It removes what a tear has left at its end. Files of
// later days stay: either they are from a clock that ran ahead, or this one runs behind.
func (s *Store) open(number int64) error {
	if err := s.Close(); err != nil {
		return err
	}
	files, err := list(s.dir)
	if err != nil {
		return err
	}
	next := fileName{day: number}
	files = slices.DeleteFunc(files, func(f fileName) bool { return f.day > number })
	if n := len(files); n > 0 && files[n-1].day == number {
		d, size, err := s.resume(files[n-1])
		if err != nil {
			return err
		}
		if d != nil {
			return s.use(files[n-1], d, size)
		}
		next.part = files[n-1].part + 1
	}
	return s.begin(next)
}

// begin opens a new file.
func (s *Store) begin(next fileName) error {
	h := header{Day: next.day, Columns: Columns[:]}
	begin, err := h.begin()
	if err != nil {
		return fmt.Errorf("begin a day of the history: %w", err)
	}
	if err := os.WriteFile(next.in(s.dir), begin, 0o600); err != nil {
		return errors.Join(fmt.Errorf("begin a day of the history: %w", err), os.Remove(next.in(s.dir)))
	}
	return s.use(next, newDay(h), int64(len(begin)))
}

// resume reads the file to which this store would append. It returns nil if the
// file has other columns, or is no file of the history.
func (s *Store) resume(name fileName) (*day, int64, error) {
	text, err := os.ReadFile(name.in(s.dir))
	if err != nil {
		return nil, 0, fmt.Errorf("read the history: %w", err)
	}
	h, frames, err := readHeader(text)
	if err != nil || !slices.EqualFunc(h.Columns, Columns[:], slices.Equal) || h.Day != name.day {
		return nil, 0, nil //nolint:nilerr // a new file follows; Read reports the damage
	}
	d := newDay(h)
	for len(frames) > 0 {
		body, rest, err := cutFrame(frames)
		if err != nil {
			break
		}
		if err := d.readFrame(body, func(int, int, []int64) {}); err != nil {
			return nil, 0, nil //nolint:nilerr // the checksum holds: another program has written it
		}
		frames = rest
	}
	return d, int64(len(text) - len(frames)), nil
}

func (s *Store) use(name fileName, d *day, size int64) error {
	f, err := os.OpenFile(name.in(s.dir), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("open a day of the history: %w", err)
	}
	if err := f.Truncate(size); err != nil {
		return errors.Join(fmt.Errorf("cut a tear off the history: %w", err), f.Close())
	}
	s.file, s.name, s.day, s.size = f, name, d, size
	return nil
}

// room removes the oldest files of other days until there is room for some bytes.
func (s *Store) room(more int64) error {
	files, err := list(s.dir)
	if err != nil {
		return err
	}
	total := more
	for _, f := range files {
		total += f.size
	}
	for _, f := range files {
		if total <= s.most {
			return nil
		}
		if f.day == s.day.Day {
			continue
		}
		if err := os.Remove(f.in(s.dir)); err != nil {
			return fmt.Errorf("remove an old day of the history: %w", err)
		}
		total -= f.size
	}
	if total > s.most {
		return ErrFull
	}
	return nil
}

// A fileName is the name of a file: the day, and the part of it. A day has
// several parts if the version of the store changed on it, or if it had many rows.
type fileName struct {
	day  int64
	part int
	size int64
}

const suffix = ".history"

func (f fileName) in(dir string) string {
	at := time.Unix(f.day*minutesOfDay*60, 0).UTC()
	return filepath.Join(dir, fmt.Sprintf("%s.%d%s", at.Format(time.DateOnly), f.part, suffix))
}

// list returns the files of a history, the oldest first.
func list(dir string) ([]fileName, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	var files []fileName
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), suffix)
		date, part, numbered := strings.Cut(name, ".")
		at, err := time.Parse(time.DateOnly, date)
		n, err2 := strconv.Atoi(part)
		if !is || !numbered || err != nil || err2 != nil {
			continue // not a file of the history
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		} else if err != nil {
			return nil, fmt.Errorf("read the history: %w", err)
		}
		files = append(files, fileName{day: at.Unix() / 60 / minutesOfDay, part: n, size: info.Size()})
	}
	slices.SortFunc(files, func(a, b fileName) int { return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.part, b.part)) })
	return files, nil
}

// Damage is a part of a file that could not be read.
type Damage struct {
	File  string
	Bytes int64
}

// Read calls each for every minute from first on and before end, in order. The
// minute is valid until each returns. Columns that a file does not have are
// Absent. An error of each ends Read, which returns it.
func Read(dir string, first, end int64, each func(*Minute) error) ([]Damage, error) {
	files, err := list(dir)
	if err != nil {
		return nil, err
	}
	var damages []Damage
	for _, f := range files {
		if f.day < first/minutesOfDay || f.day*minutesOfDay >= end {
			continue
		}
		text, err := os.ReadFile(f.in(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the store has removed it meanwhile
		} else if err != nil {
			return damages, fmt.Errorf("read the history: %w", err)
		}
		lost, err := readDay(text, first, end, each)
		if lost > 0 {
			damages = append(damages, Damage{filepath.Base(f.in(dir)), lost})
		}
		if err != nil {
			return damages, err
		}
	}
	return damages, nil
}

// readDay reads a file. It returns the number of bytes that are lost.
func readDay(text []byte, first, end int64, each func(*Minute) error) (lost int64, err error) {
	h, frames, err := readHeader(text)
	if err != nil {
		return int64(len(text)), nil //nolint:nilerr // the caller reports the damage
	}
	d := newDay(h)
	r := newReader(h)
	for len(frames) > 0 {
		body, rest, err := cutFrame(frames)
		if err != nil {
			return int64(len(frames)), nil //nolint:nilerr // the caller reports the damage
		}
		r.begin()
		if err := d.readFrame(body, func(kind, at int, values []int64) { r.row(d, kind, at, values) }); err != nil {
			return int64(len(frames)), nil //nolint:nilerr // the caller reports the damage
		}
		frames = rest
		if d.at < first || d.at >= end {
			continue
		}
		r.minute.At = d.at
		if err := each(&r.minute); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// A reader makes rows of this version's columns out of those of a file.
type reader struct {
	minute Minute
	places [kinds][]int // the column of the file for each of ours, or -1
}

func newReader(h header) *reader {
	r := &reader{}
	for k := range Columns {
		for _, name := range Columns[k] {
			place := -1
			if k < len(h.Columns) {
				place = slices.Index(h.Columns[k], name)
			}
			r.places[k] = append(r.places[k], place)
		}
	}
	return r
}

func (r *reader) begin() {
	for k := range r.minute.Rows {
		r.minute.Rows[k] = r.minute.Rows[k][:0]
	}
}

func (r *reader) row(d *day, kind, at int, values []int64) {
	if kind >= int(kinds) {
		return
	}
	rows := &r.minute.Rows[kind]
	if len(*rows) < cap(*rows) {
		*rows = (*rows)[:len(*rows)+1]
	} else {
		*rows = append(*rows, Row{})
	}
	row := &(*rows)[len(*rows)-1]
	row.Name = d.kinds[kind].names[at]
	if row.Values == nil {
		row.Values = make([]int64, len(r.places[kind]))
	}
	for c, place := range r.places[kind] {
		row.Values[c] = Absent
		if place >= 0 {
			row.Values[c] = values[place] - 1
		}
	}
}
