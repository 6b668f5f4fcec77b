// Package textfile reads a small file that the owner of the machine names,
// whatever is there: it does not wait, and does not read without end.
package textfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipeWait is how long Read waits for what a pipe brings.
const pipeWait = 2 * time.Second

// Read returns up to most bytes of the file at path. It reads nothing of a
// device, a socket or a directory. A pipe without a writer is an error, and so is
// one that brings nothing for 2 s.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	pipe := info.Mode().Type() == fs.ModeNamedPipe
	switch {
	case pipe:
		// A file that was opened without blocking is in Go's poller, so it has a deadline.
		if err := f.SetReadDeadline(time.Now().Add(pipeWait)); err != nil {
			return nil, err
		}
	case !info.Mode().IsRegular():
		return nil, notRegular(path, info)
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err == nil && pipe && len(data) == 0 {
		err = fmt.Errorf("%s is a pipe that nothing writes to", path)
	}
	return data, err
}

// ReadRegular is Read for a file that is read again and again: a pipe is refused,
// because it would keep the reader waiting for its writer.
func ReadRegular(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(path, info)
	}
	return Read(path, most)
}

func notRegular(path string, info fs.FileInfo) error {
	return fmt.Errorf("%s is no regular file (%s)", path, info.Mode().Type())
}
