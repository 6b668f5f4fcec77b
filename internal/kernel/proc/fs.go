// Package proc reads the kernel's files below /proc and /sys. It has one Go
// file for each kernel file. An FS holds the paths of /proc and /sys, so that
// the code can also read the host's mount of them, or test data. A method of FS
// reads a file, and a private function parses its text. Each such function has
// a fuzz test.
package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// FS holds the paths of the kernel's file systems.
type FS struct {
	Proc string // a mount of procfs
	Sys  string // a mount of sysfs
}

// Default returns the paths of the running system: /proc and /sys.
func Default() FS { return FS{Proc: "/proc", Sys: "/sys"} }

// ErrGone means that the process or thread has ended.
var ErrGone = errors.New("no such process")

// readFile reads a pseudo file. The kernel reports 0 as its size, and generates
// the text at each read(2). The buffer of readFile is larger than nearly every
// such file, so that one read is enough. os.ReadFile would read 512 bytes at a
// time, and these parts could be from different moments. Package os would also
// register the file with Go's poller, which costs as much as the read.
func readFile(path string) (string, error) {
	fd, err := open(path)
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

func open(path string) (int, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// buffers are the read buffers of readFile. The texts are small, so readFile
// copies them out of the buffer.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 32<<10); return &b }}

// procFile reads and parses one file below fs.Proc.
func procFile[T any](fs FS, name string, parse func(string) (T, error)) (T, error) {
	return parsed(filepath.Join(fs.Proc, name), parse)
}

// taskFile reads and parses a file of the process pid or, if tid is not 0, of
// its thread tid. If the process or the thread has ended, taskFile returns
// ErrGone.
func taskFile[T any](fs FS, pid, tid int, name string, parse func(string) (T, error)) (T, error) {
	dir := filepath.Join(fs.Proc, strconv.Itoa(pid))
	if tid != 0 {
		dir = filepath.Join(dir, "task", strconv.Itoa(tid))
	}
	v, err := parsed(filepath.Join(dir, name), parse)
	return v, goneIfAbsent(dir, err)
}

// goneIfAbsent adds ErrGone to err if the directory of the process is missing.
// Otherwise only the file is missing, because the kernel does not have it.
func goneIfAbsent(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, os.ErrNotExist):
		if _, statErr := os.Stat(dir); errors.Is(statErr, os.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
	}
	return err
}

// parsed reads and parses a file. With an error, it returns what parse could read.
func parsed[T any](path string, parse func(string) (T, error)) (T, error) {
	var zero T
	text, err := readFile(path)
	if err != nil {
		return zero, err
	}
	v, err := parse(text)
	if err != nil {
		err = fmt.Errorf("parse %s: %w", path, err)
	}
	return v, err
}

// word parses a file that holds one word.
func word(text string) (string, error) {
	s := strings.TrimSpace(text)
	if s == "" || strings.ContainsAny(s, " \t\n") {
		return "", fmt.Errorf("%q: want one word", text)
	}
	return s, nil
}

// number parses a file that holds one integer.
func number(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("%q: want a number", text)
	}
	return n, nil
}
