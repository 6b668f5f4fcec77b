// Package openfile reads pseudo files, such as those of cgroups, and keeps them
// open: opening and closing one costs ten times as much as reading it.
package openfile

import (
	"errors"
	"io"
	"sync"
	"syscall"
)

// A Set is the open files of many groups, at most so many at a time. It is safe
// for concurrent use.
type Set struct {
	mu    sync.Mutex
	files map[string]map[string]int // descriptors, by group and file
	most  int
	left  int // how many more may be kept
	buf   [16 << 10]byte
}

// New returns a Set that keeps at most so many files open.
func New(most int) *Set { return &Set{files: map[string]map[string]int{}, most: most, left: most} }

// Read reads a file of a group, whose folder is dir. It keeps the file open if
// more than reserved others could be kept beside it; else it fails with EMFILE.
// A kept file belongs to the group that had the name when it was opened; when
// that group is gone, Read opens the file of the group that has the name now.
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
		// The group was removed; a new group may have the same name.
		if !kept || !errors.Is(err, syscall.ENODEV) {
			return "", err
		}
	}
}

// Most returns how many files s keeps open at most.
func (s *Set) Most() int { return s.most }

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

// close closes the files of a group; s.mu is held.
func (s *Set) close(group string) {
	for _, fd := range s.files[group] {
		_ = syscall.Close(fd)
		s.left++
	}
	delete(s.files, group)
}

// Open opens a file for reading without package os. That package registers the
// file with the poller, which is half the cost of reading a pseudo file once.
// The caller closes the descriptor.
func Open(path string) (fd int, err error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// ReadWhole reads a whole file into buf, and fails with io.ErrShortBuffer if the
// file is longer. The kernel writes the file of a counter or a setting in one
// piece (fs/kernfs/file.c: kernfs_seq_show). A text that ends in a newline is
// therefore complete, and no second read is needed.
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
