// This file reads a small file with a configured path. It limits the size and
// the waiting time for files of every kind.

package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// pipeWait is the time that Read waits for data from a pipe.
const pipeWait = 2 * time.Second

// ReadText reads the file at path. most is the maximum length of the result in
// bytes. A device, a socket or a directory is an error. A pipe is an error if
// it has no writer, or delivers nothing for 2 s.
func ReadText(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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
		// Go's poller handles files that were opened as non-blocking, so they can
		// have deadlines.
		if err := f.SetReadDeadline(time.Now().Add(pipeWait)); err != nil {
			return nil, err
		}
	case !info.Mode().IsRegular():
		return nil, notRegular(path, info)
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err == nil && pipe && len(data) == 0 {
		err = fmt.Errorf("%s is a pipe without a writer", path)
	}
	return data, err
}

// ReadRegular is like Read, but only for regular files. Callers read the file
// repeatedly, and each read of a pipe would have to wait for a writer.
func ReadRegular(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(path, info)
	}
	return ReadText(path, most)
}

func notRegular(path string, info fs.FileInfo) error {
	return fmt.Errorf("%s is no regular file (%s)", path, info.Mode().Type())
}
