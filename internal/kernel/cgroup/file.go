package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"tenon.sh/tenon/internal/kernel/partial"
)

// readFile reads a pseudo file, whose size the kernel gives as 0. The buffer is
// larger than nearly every such file, so that one read(2) gets a consistent text.
func readFile(path string) (string, error) {
	fd, err := openPath(path)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	lent := buffers.Get().(*[]byte)
	defer buffers.Put(lent)
	buf := (*lent)[:0]
	for {
		n, err := syscall.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return "", &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return string(buf), nil
		}
		if buf = buf[:len(buf)+n]; len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

// buffers are the read buffers of readFile, which copies each text out of its buffer.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

// read returns the text of a file of a group, without trailing newline.
func (h *hierarchy) read(path, file string) (string, error) {
	dir, err := h.dir(path)
	if err != nil {
		return "", err
	}
	text, err := readFile(filepath.Join(dir, file))
	if err != nil {
		return "", fmt.Errorf("read %s in %s: %w", file, printPath(path), lookCause(dir, file, err))
	}
	return strings.TrimSuffix(text, "\n"), nil
}

// readValue does the same as read, but faster. It is only for files that the
// kernel writes in one piece (see readWhole), not for lists of
// processes.
func (h *hierarchy) readValue(path, file string) (string, error) {
	dir, err := h.dir(path)
	if err != nil {
		return "", err
	}
	fd, err := openPath(dir + "/" + file)
	if err != nil {
		return h.read(path, file) // read returns the full error
	}
	defer syscall.Close(fd)
	lent := buffers.Get().(*[]byte)
	defer buffers.Put(lent)
	buf := (*lent)[:cap(*lent)]
	n, err := readWhole(fd, buf)
	if err != nil {
		return h.read(path, file)
	}
	return strings.TrimSuffix(string(buf[:n]), "\n"), nil
}

// write writes a value to a file of a group. It uses a single write(2), because
// the kernel takes each write(2) as a whole value.
func (h *hierarchy) write(path, file, value string) error {
	dir, err := h.dir(path)
	if err != nil {
		return err
	}
	// Close the files that are kept open, because the group may have been renamed
	// since they were opened. The caller reads the value back after the write.
	if h.open != nil {
		h.open.Close(path)
	}
	// Without the newline, an empty value would cause no write(2).
	if err := writePath(dir+"/"+file, value+"\n"); err != nil {
		return fmt.Errorf("write %s %q in %s: %w", file, value, printPath(path), cause(dir, err))
	}
	if h.wrote != nil {
		h.wrote(dir, file)
	}
	return nil
}

// read reads and parses a file of the given controller.
func read[T any](t *Tree, controller, path, file string, parse func(string) (T, error)) (T, error) {
	return readBy((*hierarchy).readValue, t, controller, path, file, parse)
}

// readOften does the same as read, but keeps the file open for the next call.
// It is for settings that an agent reads again and again.
func readOften[T any](t *Tree, controller, path, file string, parse func(string) (T, error)) (T, error) {
	return readBy((*hierarchy).setting, t, controller, path, file, parse)
}

func readBy[T any](by func(h *hierarchy, path, file string) (string, error), t *Tree, controller, path, file string, parse func(string) (T, error)) (T, error) {
	var zero T
	h, err := t.hierarchy(controller)
	if err != nil {
		return zero, fmt.Errorf("read %s in %s: %w", file, printPath(path), err)
	}
	text, err := by(h, path, file)
	if err != nil {
		return zero, err
	}
	v, err := parse(text)
	if err != nil {
		err = fmt.Errorf("parse %s in %s: %w", file, printPath(path), err)
	}
	return v, err
}

func (t *Tree) write(controller, path, file, value string) error {
	h, err := t.hierarchy(controller)
	if err != nil {
		return fmt.Errorf("write %s %q in %s: %w", file, value, printPath(path), err)
	}
	return h.write(path, file, value)
}

// cause reduces err to its errno, and adds ErrGone if the group is missing. If
// only the file is missing, it adds ErrUnsupported.
func cause(dir string, err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}
	if errno == syscall.ENOENT || errno == syscall.ENODEV {
		if !exists(dir) {
			return fmt.Errorf("%w: %w", ErrGone, errno)
		}
	}
	if errno == syscall.ENOENT || errno == syscall.EOPNOTSUPP {
		return fmt.Errorf("%w: %w", ErrUnsupported, errno)
	}
	return errno
}

// lookCause does the same as cause for a file that is read, or for the directory
// itself (""). The group may be removed and made again before cause looks for it.
// So lookCause also adds ErrGone if what was missing is there now.
func lookCause(dir, file string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) && (errno == syscall.ENOENT || errno == syscall.ENODEV) {
		if _, err := os.Lstat(filepath.Join(dir, file)); file == "" || err == nil {
			return fmt.Errorf("%w: %w", ErrGone, errno)
		}
	}
	return cause(dir, err)
}

// exists reports whether dir is a directory. If it cannot find out, it returns
// true.
func exists(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() || err != nil && !errors.Is(err, os.ErrNotExist)
}

// printPath returns a path as error messages print it.
func printPath(path string) string {
	if path == "" {
		return "the root cgroup"
	}
	return partial.Shown(path)
}

// parseCount reads a non-negative number, or "max" as the largest number.
func parseCount(text string) (int64, error) {
	if text == "max" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: want a number or max", text)
	}
	return int64(min(n, math.MaxInt64)), nil
}

// parseCounter reads a number that the kernel counts. It is never "max", and a
// number above the largest int64 is a counter that has fallen below zero.
func parseCounter(text string) (int64, error) {
	n, known := numberOf(text, 1)
	if !known {
		return 0, fmt.Errorf("%q: want a number from 0 to %d", text, int64(math.MaxInt64))
	}
	return n, nil
}

// count prints a number in the format that parseCount reads.
func count(n int64) string {
	if n == math.MaxInt64 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// flatFile returns a parser of a flat keyed file: each line has a name and a
// number. It returns the numbers with the given names, without those that are
// missing, and fails only if one of these lines is damaged or there twice.
func flatFile(names ...string) func(text string) (map[string]int64, error) {
	return func(text string) (map[string]int64, error) {
		m := make(map[string]int64, len(names))
		for key, value := range flatLines(text) {
			if !slices.Contains(names, key) {
				continue
			}
			n, err := parseCounter(value)
			if _, twice := m[key]; twice && err == nil {
				err = errors.New("it is there twice")
			}
			if err != nil {
				return nil, fmt.Errorf("line %s: %w", key, err)
			}
			m[key] = n
		}
		return m, nil
	}
}
