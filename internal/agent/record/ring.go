package record

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/agent/printable"
)

const (
	// DefaultSize is the size of the ring in bytes. If all of a hundred workloads
	// change, a tick takes 3.1 KB. It takes 3.7 KB if waits are also counted, most
	// workloads wait for most others, and the BE scheduler has orders for all.
	// With ticks of one second, the ring contains an hour, even after the oldest
	// file was removed.
	DefaultSize = 16 << 20
	// segments is the number of files in the ring. If the ring is full, the
	// oldest file is removed.
	segments = 8
	// retryInterval is the time between a failure of the recorder and its next
	// attempt. Each attempt writes a key line, which is about ten times as long as
	// another line.
	retryInterval = 10 * time.Second
)

// subdir is the directory of the ring, below the state directory.
const subdir = "record"

// A Recorder keeps the last ticks in files of compressed lines. Each file
// begins with a key line, so that older files can be removed. When Record
// returns, the tick is in the file and survives a crash. A Recorder is not safe
// for concurrent use.
type Recorder struct {
	dir  string
	size int64

	encoder encoder
	ticks   int      // number of the last tick
	file    *segment // nil: none is open
	number  int      // number of the last file that was opened
	failed  error    // the reason why no file is open
	retry   time.Time
}

// Open opens the ring in stateDir, which must be on tmpfs, because every tick
// writes to it. The ticks of an earlier recorder stay until their space is
// needed. A size of 0 means DefaultSize.
func Open(stateDir string, size int64) (*Recorder, error) {
	r := &Recorder{dir: filepath.Join(stateDir, subdir), size: cmp.Or(size, DefaultSize)}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the flight recorder: %w", err)
	}
	old, err := list(r.dir)
	if err != nil {
		return nil, err
	}
	if len(old) > 0 {
		r.number = old[len(old)-1].number
	}
	return r, nil
}

// Record adds a tick. It skips a tick that could not read the node, because
// such a tick decides nothing. After an error, it skips all ticks for
// retryInterval, and returns the same error for each of them.
func (r *Recorder) Record(t Tick) error {
	at := t.Snapshot.At
	if at.IsZero() {
		return nil
	}
	r.ticks++
	if waited := at.Sub(r.retry); r.failed != nil && waited >= -retryInterval && waited < 0 {
		return r.failed
	}
	r.failed = r.add(t)
	if r.failed != nil {
		r.retry = at.Add(retryInterval)
		if r.file != nil {
			r.file.abandon()
			r.file = nil
		}
	}
	return r.failed
}

func (r *Recorder) add(t Tick) error {
	if r.file != nil && r.file.isRemoved() {
		r.file.abandon()
		r.file = nil
	}
	if r.file != nil && r.file.size >= r.size/segments {
		err := r.file.close()
		r.file = nil
		if err != nil {
			return fmt.Errorf("flight recorder: %w", err)
		}
	}
	key := r.file == nil
	l, err := r.encoder.line(t, r.ticks, key)
	if err != nil {
		return err
	}
	text, err := printable.Marshal(l)
	if err != nil {
		return fmt.Errorf("record a tick: %w", err)
	}
	if key {
		if err := r.open(); err != nil {
			return err
		}
	}
	if err := r.file.write(append(text, '\n')); err != nil {
		return fmt.Errorf("flight recorder: %w", err)
	}
	return nil
}

// open starts the next file. Before that, it removes old files to make room. If
// another program has removed the directory, open creates it again.
func (r *Recorder) open() error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("flight recorder: %w", err)
	}
	old, err := list(r.dir)
	if err != nil {
		return err
	}
	var sum int64
	for _, f := range old {
		sum += f.size
	}
	for ; len(old) > 0 && sum+r.size/segments > r.size; old = old[1:] {
		if err := os.Remove(old[0].path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("flight recorder: %w", err)
		}
		sum -= old[0].size
	}
	if err := r.roomLeft(); err != nil {
		return err
	}
	r.number++
	r.file, err = create(filepath.Join(r.dir, nameOf(r.number)))
	if err != nil {
		return fmt.Errorf("flight recorder: %w", err)
	}
	return nil
}

// roomLeft returns an error if the file system is almost full. The journal is
// on the same file system, and is more important than the ring.
func (r *Recorder) roomLeft() error {
	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil {
		return fmt.Errorf("flight recorder: statfs %s: %w", r.dir, err)
	}
	if left := int64(st.Bavail) * st.Bsize; left < r.size {
		return fmt.Errorf("flight recorder: %d bytes are left for %s: it wants %d to stay free for others", left, r.dir, r.size)
	}
	return nil
}

// Close closes the file that is being written. The files of the ring stay.
func (r *Recorder) Close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.close()
	r.file = nil
	return err
}

// A segment is the file of the ring that is being written.
type segment struct {
	file *os.File
	buf  *bufio.Writer
	gzip *gzip.Writer
	size int64 // size of the complete part, in bytes
}

func create(path string) (*segment, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	s := &segment{file: f, buf: bufio.NewWriterSize(f, 16<<10)}
	// NewWriterLevel fails only for a level that does not exist.
	s.gzip, _ = gzip.NewWriterLevel(s.buf, gzip.BestSpeed) //nolint:errcheck // the level exists
	return s, nil
}

// write adds a line, and flushes the file so that the line can be read at once.
func (s *segment) write(text []byte) error {
	_, err := s.gzip.Write(text)
	if err = errors.Join(err, s.gzip.Flush(), s.buf.Flush()); err != nil {
		return err
	}
	s.size, err = s.file.Seek(0, io.SeekCurrent)
	return err
}

// isRemoved reports whether another program has removed or renamed the file, so
// that no reader can find it.
func (s *segment) isRemoved() bool {
	now, err := os.Stat(s.file.Name())
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	held, err := s.file.Stat()
	return err == nil && !os.SameFile(held, now)
}

func (s *segment) close() error {
	return errors.Join(s.gzip.Close(), s.buf.Flush(), s.file.Close())
}

// abandon closes the segment after an error. It ignores further errors, because
// readers skip an incomplete line.
func (s *segment) abandon() {
	_ = s.file.Truncate(s.size)
	_ = s.file.Close()
}

// A ringFile is a file of a ring.
type ringFile struct {
	path   string
	number int
	size   int64
}

const (
	prefix = "ticks-"
	suffix = ".jsonl.gz"
)

func nameOf(number int) string { return fmt.Sprintf("%s%09d%s", prefix, number, suffix) }

// list returns the files of a ring, oldest first. It ignores other files. If
// the directory does not exist, the list is empty.
func list(dir string) ([]ringFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("flight recorder: %w", err)
	}
	var all []ringFile
	for _, e := range entries {
		digits, isOurs := strings.CutPrefix(e.Name(), prefix)
		digits, ends := strings.CutSuffix(digits, suffix)
		number, err := strconv.Atoi(digits)
		if !isOurs || !ends || err != nil || number < 1 {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // the file has been removed since the listing
		}
		all = append(all, ringFile{filepath.Join(dir, e.Name()), number, info.Size()})
	}
	slices.SortFunc(all, func(a, b ringFile) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}
