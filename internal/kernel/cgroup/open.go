package cgroup

import (
	"errors"
	"io"
	"path/filepath"
	"sync"
	"syscall"
)

// KeepOpen returns a Tree that keeps the files of counters open between
// readings: opening and closing costs more than reading. An open file holds
// its group in the kernel's memory after it was removed, so whoever reads a
// group this way calls Close when it no longer will.
func (t *Tree) KeepOpen() *Tree {
	kept := &Tree{of: map[string]*hierarchy{}}
	for _, h := range t.all {
		k := *h
		k.open = &handles{files: map[string]map[string]int{}}
		kept.all = append(kept.all, &k)
		for c, of := range t.of {
			if of == h {
				kept.of[c] = &k
			}
		}
	}
	return kept
}

// Close closes the files of a group that KeepOpen's Tree holds.
func (t *Tree) Close(path string) {
	for _, h := range t.all {
		h.open.closeGroup(path)
	}
}

// CloseAll closes all files that KeepOpen's Tree holds. It can be read on.
func (t *Tree) CloseAll() {
	for _, h := range t.all {
		h.open.closeAll()
	}
}

// handles are the open files of a hierarchy. Nil: none are kept.
type handles struct {
	mu    sync.Mutex
	files map[string]map[string]int // descriptors, by group and file
	buf   [16 << 10]byte
}

// counter reads a file of a group that is read again and again.
func (h *hierarchy) counter(path, file string) (string, error) {
	if h.open == nil {
		return h.read(path, file)
	}
	text, err := h.open.read(h, path, file)
	if err != nil {
		return h.read(path, file) // says what is wrong
	}
	return text, nil
}

func (o *handles) read(h *hierarchy, path, file string) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		fd, kept := o.files[path][file]
		if !kept {
			dir, err := h.dir(path)
			if err != nil {
				return "", err
			}
			if fd, err = openFile(filepath.Join(dir, file)); err != nil {
				return "", err
			}
			if o.files[path] == nil {
				o.files[path] = map[string]int{}
			}
			o.files[path][file] = fd
		}
		n, err := readWhole(fd, o.buf[:])
		if err == nil {
			return string(o.buf[:n]), nil
		}
		_ = syscall.Close(fd)
		delete(o.files[path], file)
		// The group was removed; one of the same name may have taken its place.
		if !kept || !errors.Is(err, syscall.ENODEV) {
			return "", err
		}
	}
}

// openFile opens a file for reading, past package os: that would ask the
// kernel to tell when a file can be read, which is half the cost of reading a
// pseudo file once.
func openFile(path string) (int, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// readWhole reads a file from its start to its end into buf, and fails with
// io.ErrShortBuffer if it is longer. The kernel makes the file of a counter in
// one piece (fs/kernfs/file.c: kernfs_seq_show): what ends in a newline is
// all of it, and there is no need to ask for more.
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

func (o *handles) closeGroup(path string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.close(path)
}

func (o *handles) closeAll() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for path := range o.files {
		o.close(path)
	}
}

// close closes the files of a group; o.mu is held.
func (o *handles) close(path string) {
	for _, fd := range o.files[path] {
		_ = syscall.Close(fd)
	}
	delete(o.files, path)
}
