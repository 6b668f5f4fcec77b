// This file attaches short texts to directories of cgroups. The kernel stores
// them as extended attributes (trusted.*, xattr(7)), which have no effect on
// the cgroup. A note disappears with its cgroup, and stays when the cgroup is
// renamed. Only processes with CAP_SYS_ADMIN can write and read notes.

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoNotes means that the file system does not support notes, or that
// this process may not write them.
var ErrNoNotes = errors.New("no notes here")

// notePrefix begins the names of the attributes.
const notePrefix = "trusted.tenon."

// SetNote writes a note at a directory.
func SetNote(dir, name, text string) error {
	if err := unix.Setxattr(dir, notePrefix+name, []byte(text), 0); err != nil {
		return fmt.Errorf("write note %s at %s: %w", name, dir, noteCause(err))
	}
	return nil
}

// DropNote removes a note. It returns nil if the note or the directory does not
// exist.
func DropNote(dir, name string) error {
	err := unix.Removexattr(dir, notePrefix+name)
	if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove note %s at %s: %w", name, dir, noteCause(err))
	}
	return nil
}

// Notes returns the notes of a directory by their names. A process without
// CAP_SYS_ADMIN gets none.
func Notes(dir string) (map[string]string, error) {
	list, err := noteAttribute(func(b []byte) (int, error) { return unix.Listxattr(dir, b) })
	if err != nil {
		return nil, fmt.Errorf("list the notes at %s: %w", dir, noteCause(err))
	}
	var notes map[string]string
	for attr := range strings.SplitSeq(string(list), "\x00") {
		name, ours := strings.CutPrefix(attr, notePrefix)
		if !ours {
			continue
		}
		text, err := noteAttribute(func(b []byte) (int, error) { return unix.Getxattr(dir, attr, b) })
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read note %s at %s: %w", name, dir, noteCause(err))
		}
		if notes == nil {
			notes = map[string]string{}
		}
		notes[name] = string(text)
	}
	return notes, nil
}

// NotesReadable reports whether this process sees notes: whether it has CAP_SYS_ADMIN
// in the first user namespace. Without it, the kernel hides all notes.
func NotesReadable() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil || sets[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return false
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	// A kernel without user namespaces has no such file.
	return err != nil || slices.Equal(strings.Fields(string(ids)), []string{"0", "0", "4294967295"})
}

// maxAttribute is the maximum size, in bytes, of one attribute (XATTR_SIZE_MAX).
const maxAttribute = 64 << 10

// noteAttribute calls the function read with larger and larger buffers, until the
// result fits.
func noteAttribute(read func([]byte) (int, error)) ([]byte, error) {
	for size := 1 << 10; ; size *= 8 {
		b := make([]byte, size)
		n, err := read(b)
		if !errors.Is(err, unix.ERANGE) || size >= maxAttribute {
			return b[:max(n, 0)], err
		}
	}
}

func noteCause(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w: %w", ErrNoNotes, err)
	}
	return err
}
