package cgroup

import (
	"errors"
	"io"
	"os"
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
		k.open = &handles{files: map[handle]*os.File{}}
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

// handles are the open files of a hierarchy. Nil: none are kept.
type handles struct {
	mu    sync.Mutex
	files map[handle]*os.File
	buf   [16 << 10]byte
}

type handle struct{ path, file string }

// counter reads a file of a group that is read again and again.
func (h *hierarchy) counter(path, file string) (string, error) {
	if h.open == nil {
		return h.read(path, file)
	}
	text, err := h.open.read(handle{path, file}, h)
	if err != nil {
		return h.read(path, file) // says what is wrong
	}
	return text, nil
}

func (o *handles) read(key handle, h *hierarchy) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		f, kept := o.files[key]
		if !kept {
			dir, err := h.dir(key.path)
			if err != nil {
				return "", err
			}
			if f, err = os.Open(filepath.Join(dir, key.file)); err != nil {
				return "", err
			}
			o.files[key] = f
		}
		n, err := f.ReadAt(o.buf[:], 0)
		if errors.Is(err, io.EOF) {
			return string(o.buf[:n]), nil
		}
		_ = f.Close()
		delete(o.files, key)
		// The group was removed; one of the same name may have taken its place.
		if !kept || !errors.Is(err, syscall.ENODEV) {
			if err == nil {
				err = io.ErrShortBuffer // longer than any counter's file
			}
			return "", err
		}
	}
}

func (o *handles) closeGroup(path string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, f := range o.files {
		if key.path == path {
			_ = f.Close()
			delete(o.files, key)
		}
	}
}
