package work

import (
	"bufio"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

const (
	hogChunk  = 256 << 10
	hogWrites = 16                     // one of this many chunks is written back
	HogReport = 100 * time.Millisecond // time between two lines of progress
)

// Hog is batch work that demands much memory. It reads a file from beginning to
// end, again and again, and computes a checksum of each chunk. It keeps the
// chunks that it read last, about held bytes, in anonymous memory, and writes
// every sixteenth chunk back. It behaves like a job whose data does not fit
// into memory. It prints how many bytes it has read, one line per report.
func Hog(ctx context.Context, path string, held unit.Bytes, out io.Writer) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("hog: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("hog: %w", err)
	}
	chunks, room := info.Size()/hogChunk, int64(held)/hogChunk
	if chunks < 1 || room < 1 {
		return fmt.Errorf("hog: a file of %d bytes and %v bytes of memory: want 256 KiB of each", info.Size(), held)
	}
	memory, err := unix.Mmap(-1, 0, int(room*hogChunk), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("hog: map %v bytes: %w", held, err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	var sum [sha512.Size]byte
	said := time.Now()
	for i := int64(0); ctx.Err() == nil; i++ {
		at := i % chunks * hogChunk
		piece := memory[i%room*hogChunk:][:hogChunk]
		if _, err := f.ReadAt(piece, at); err != nil {
			return fmt.Errorf("hog: %w", err)
		}
		sum = sha512.Sum512(piece)
		if i%hogWrites == hogWrites-1 {
			if _, err := f.WriteAt(piece, at); err != nil {
				return fmt.Errorf("hog: %w", err)
			}
		}
		if time.Since(said) >= HogReport {
			said = time.Now()
			if _, err := fmt.Fprintln(out, (i+1)*hogChunk); err != nil {
				return nil // the reader has ended
			}
		}
	}
	runtime.KeepAlive(sum)
	return nil
}

// Warm reads every file of a directory twice. The kernel treats pages as active
// only if they were read more than once.
func Warm(dir string) error {
	buffer := make([]byte, 1<<20)
	for range 2 {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			for {
				if _, err := f.Read(buffer); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
			}
		})
		if err != nil {
			return fmt.Errorf("warm the page cache: %w", err)
		}
	}
	return nil
}

// A Meter records a counter that a process prints.
type Meter struct {
	mu    sync.Mutex
	marks []mark
}

type mark struct {
	at    time.Time
	count float64
}

// Follow reads counts until r ends. now returns the time of a count.
func (m *Meter) Follow(r io.Reader, now func() time.Time) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		n, err := strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		if err != nil {
			return fmt.Errorf("read the progress of a process: %.80q: want a whole number", lines.Text())
		}
		m.mu.Lock()
		m.marks = append(m.marks, mark{now(), float64(n)})
		m.mu.Unlock()
	}
	return lines.Err()
}

// Last returns the latest count.
func (m *Meter) Last() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1].count
}

// GrowthBetween returns the growth of the count between two times. It
// interpolates between the lines.
func (m *Meter) GrowthBetween(from, to time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := func(t time.Time) float64 {
		for i, k := range m.marks {
			switch {
			case k.at.Before(t):
				continue
			case i == 0:
				return k.count
			}
			before := m.marks[i-1]
			return before.count + (k.count-before.count)*float64(t.Sub(before.at))/float64(k.at.Sub(before.at))
		}
		if len(m.marks) == 0 {
			return 0
		}
		return m.marks[len(m.marks)-1].count
	}
	return max(at(to)-at(from), 0)
}
