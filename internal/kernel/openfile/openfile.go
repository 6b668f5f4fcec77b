// Package openfile reads pseudo files, such as those of cgroups, and keeps them
// open. To open and close such a file costs ten times as much as to read it.
package openfile

import (
	"errors"
	"io"
	"sync"
	"syscall"
)

// A Set holds open files of many groups. The number of open files has a limit.
// It is safe for concurrent use.
type Set struct {
	mu    sync.Mutex
	files map[string]map[string]int // descriptors, by group and file
	most  int
	left  int // number of files that may still be kept open
	buf   [16 << 10]byte
}

// New returns a Set that keeps a limited number of files open.
func New(limit int) *Set { return &Set{files: map[string]map[string]int{}, most: limit, left: limit} }

// Read reads a file of a group. dir is the folder of the group. If more files
// than the reserved number could still be kept open, Read keeps the file open,
// and otherwise it fails with EMFILE. A kept file belongs to the group that had
// the name when the file was opened. If that group does not exist any more,
// Read opens the file of the group that has the name now.
func (s *Set) Read(group, dir, file string, reserved int) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		fd, kept := s.files[group][file]
		if !kept {
			if s.left <= reserved {
				return "", syscall.EMFILE
			}
			var err error
			if fd, err = Open(dir + "/" + file); err != nil {
				return "", err
			}
			s.left--
			if s.files[group] == nil {
				s.files[group] = map[string]int{}
			}
			s.files[group][file] = fd
		}
		n, err := ReadWhole(fd, s.buf[:])
		if err == nil {
			return string(s.buf[:n]), nil
		}
		_ = syscall.Close(fd)
		delete(s.files[group], file)
		s.left++
		// The group was removed. A new group may have the same name.
		if !kept || !errors.Is(err, syscall.ENODEV) {
			return "", err
		}
	}
}

// MaxOpen returns the maximum number of files that s keeps open.
func (s *Set) MaxOpen() int { return s.most }

// Len returns how many files are open.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most - s.left
}

// Close closes the files of a group.
func (s *Set) Close(group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close(group)
}

// CloseAll closes all files.
func (s *Set) CloseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for group := range s.files {
		s.close(group)
	}
}

// close closes the files of a group. The caller holds s.mu.
func (s *Set) close(group string) {
	for _, fd := range s.files[group] {
		_ = syscall.Close(fd)
		s.left++
	}
	delete(s.files, group)
}

// Open opens a file for reading without package os. That package would register
// the file with the poller, which is half of the cost of reading a pseudo file
// once. The caller must close the descriptor.
func Open(path string) (fd int, err error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// ReadWhole reads a whole file into buf. If the file is longer than buf, it
// fails with io.ErrShortBuffer. The kernel writes the text of a counter or a
// setting in one piece (fs/kernfs/file.c: kernfs_seq_show). A text that ends
// with a newline is therefore complete, and needs no second read.
func ReadWhole(fd int, buf []byte) (int, error) {
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
