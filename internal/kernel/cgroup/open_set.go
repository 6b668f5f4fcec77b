// This file reads pseudo files, such as those of cgroups, and keeps them open.
// To open and close such a file costs ten times as much as to read it.

package cgroup

import (
	"container/list"
	"errors"
	"io"
	"io/fs"
	"sync"
	"syscall"
)

// An openSet holds open files of many cgroups, called groups here. It keeps a
// limited number of files open. It is safe for concurrent use.
type openSet struct {
	mu    sync.Mutex
	files map[string]map[string]*openFile // by group and name
	used  list.List                       // the files with reserved 0, in the order of their last reading, newest first
	most  int
	left  int // number of files that may still be kept open
	buf   [16 << 10]byte
}

// An openFile is an open file.
type openFile struct {
	group, name string
	fd          int
	at          *list.Element // its place in used; nil: reserved was above 0
}

// newOpenSet returns an openSet that keeps a limited number of files open.
func newOpenSet(limit int) *openSet {
	return &openSet{files: map[string]map[string]*openFile{}, most: limit, left: limit}
}

// Read reads a file of a group, and keeps the file open. dir is the folder of the
// group. reserved is the number of files that must remain for other callers.
//
// If reserved is above 0, Read opens a file only while more than this number may
// still be kept open, and otherwise fails with EMFILE. If reserved is 0 and the
// limit is reached, Read closes another file with reserved 0: the one that was not
// read for the longest time. If there is none, it fails with EMFILE. So files that
// are read in every tick stay open, even on a node with many groups. If the group
// of an open file was removed, Read opens the file of the group that has the name
// now.
func (s *openSet) Read(group, dir, name string, reserved int) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		f, kept := s.files[group][name]
		if !kept {
			var err error
			if f, err = s.open(group, dir, name, reserved); err != nil {
				return "", err
			}
		} else if f.at != nil {
			s.used.MoveToFront(f.at)
		}
		n, err := readWhole(f.fd, s.buf[:])
		if err == nil {
			return string(s.buf[:n]), nil
		}
		s.shut(f)
		// The group was removed. A new group may have the same name.
		if !kept || !errors.Is(err, syscall.ENODEV) {
			return "", err
		}
	}
}

// openFlags opens a file and keeps it open.
func (s *openSet) open(group, dir, name string, reserved int) (*openFile, error) {
	oldest := s.used.Back()
	if s.left <= reserved && (reserved > 0 || oldest == nil) {
		return nil, syscall.EMFILE
	}
	fd, err := openPath(dir + "/" + name)
	if err != nil {
		return nil, err
	}
	if s.left <= 0 {
		s.shut(oldest.Value.(*openFile))
	}
	f := &openFile{group: group, name: name, fd: fd}
	if reserved == 0 {
		f.at = s.used.PushFront(f)
	}
	s.left--
	if s.files[group] == nil {
		s.files[group] = map[string]*openFile{}
	}
	s.files[group][name] = f
	return f, nil
}

// shut closes a file.
func (s *openSet) shut(f *openFile) {
	_ = syscall.Close(f.fd)
	s.left++
	if f.at != nil {
		s.used.Remove(f.at)
	}
	if delete(s.files[f.group], f.name); len(s.files[f.group]) == 0 {
		delete(s.files, f.group)
	}
}

// MaxOpen returns the maximum number of files that s keeps open.
func (s *openSet) MaxOpen() int { return s.most }

// Len returns how many files are open.
func (s *openSet) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most - s.left
}

// Close closes the files of a group.
func (s *openSet) Close(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close(group)
}

// CloseAll closes all files.
func (s *openSet) CloseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for group := range s.files {
		s.close(group)
	}
}

// close closes the files of a group. The caller holds s.mu.
func (s *openSet) close(group string) {
	for _, f := range s.files[group] {
		s.shut(f)
	}
}

// openPath opens a file for reading without package os, which would register the
// file with Go's poller: half of the cost of one read of a pseudo file. The
// caller must close the descriptor.
func openPath(path string) (fd int, err error) { return openFlags(path, syscall.O_RDONLY) }

// writePath writes a text to an existing pseudo file in one write(2), which most of
// these files require. It does not use package os either: such a file is always
// ready, so that the poller would wake up a thread at once. Like package os, it
// sets O_NONBLOCK. O_TRUNC has no effect on a pseudo file, but removes the old
// content of a plain file in a test.
func writePath(path, text string) error {
	fd, err := openFlags(path, syscall.O_WRONLY|syscall.O_TRUNC|syscall.O_NONBLOCK)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	n, err := syscall.Write(fd, []byte(text))
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Write(fd, []byte(text))
	}
	if err == nil && n != len(text) {
		err = io.ErrShortWrite
	}
	if err = errors.Join(err, syscall.Close(fd)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func openFlags(path string, flags int) (fd int, err error) {
	for {
		fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// readWhole reads a whole file into buf. If the file is longer than buf, it
// fails with io.ErrShortBuffer. The kernel writes the text of a counter or a
// setting in one piece (fs/kernfs/file.c: kernfs_seq_show). So a text that ends
// with a newline is complete, and needs no second read.
func readWhole(fd int, buf []byte) (int, error) {
	n := 0
	for {
		if n == len(buf) {
			return n, io.ErrShortBuffer
		}
		more, err := syscall.Pread(fd, buf[n:], int64(n))
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		n += more
		if more == 0 || buf[n-1] == '\n' && n < len(buf) {
			return n, nil
		}
	}
}
