package cgroup

import (
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// KeepOpen returns a Tree that keeps the files of counters open, because
// opening and closing costs more than reading. An open file keeps a removed
// group in the kernel's memory. Therefore the caller must call Close for each
// group that it stops reading. It keeps at most so many files open in each
// hierarchy, because a node may have more groups than a process descriptors.
func (t *Tree) KeepOpen(most int) *Tree {
	kept := &Tree{of: map[string]*hierarchy{}}
	for _, h := range t.all {
		k := *h
		k.open = &handles{files: map[string]map[string]int{}, left: most}
		kept.all = append(kept.all, &k)
		for c, of := range t.of {
			if of == h {
				kept.of[c] = &k
			}
		}
	}
	return kept
}

// Close closes the files of a group that the Tree keeps open.
func (t *Tree) Close(path string) {
	for _, h := range t.all {
		h.open.close(func(map[string]map[string]int) []string { return []string{path} })
	}
}

// CloseAll closes all files that the Tree keeps open. The Tree stays usable.
func (t *Tree) CloseAll() {
	for _, h := range t.all {
		h.open.close(func(files map[string]map[string]int) []string { return slices.Collect(maps.Keys(files)) })
	}
}

// handles are the open files of a hierarchy; nil means that no files are kept
// open.
type handles struct {
	mu    sync.Mutex
	files map[string]map[string]int // descriptors, by group and file
	left  int                       // how many more may be kept
	buf   [16 << 10]byte
}

// counter reads a file of a group through a handle that stays open.
func (h *hierarchy) counter(path, file string) (string, error) {
	if h.open == nil {
		return h.read(path, file)
	}
	text, err := h.open.read(h, path, file)
	if err != nil {
		return h.readValue(path, file) // returns the full error
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
			if o.left == 0 {
				return "", syscall.EMFILE
			}
			if fd, err = openFile(filepath.Join(dir, file)); err != nil {
				return "", err
			}
			o.left--
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
		o.left++
		// The group was removed; a new group may have the same name.
		if !kept || !errors.Is(err, syscall.ENODEV) {
			return "", err
		}
	}
}

// openFile opens a file for reading without package os. That package registers
// the file with the poller, which is half the cost of reading a pseudo file
// once.
func openFile(path string) (int, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// readWhole reads a whole file into buf, and fails with io.ErrShortBuffer if
// the file is longer. The kernel writes the file of a counter in one piece
// (fs/kernfs/file.c: kernfs_seq_show). A text that ends in a newline is
// therefore complete, and no second read is needed.
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

// close closes the files of some groups.
func (o *handles) close(groups func(files map[string]map[string]int) []string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, path := range groups(o.files) {
		for _, fd := range o.files[path] {
			_ = syscall.Close(fd)
			o.left++
		}
		delete(o.files, path)
	}
}
