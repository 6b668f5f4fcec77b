// Package resctrl reads and writes the kernel's resctrl file system, which
// divides L3 caches and memory bandwidth among groups of tasks, and measures
// their use. See Documentation/filesystems/resctrl.rst (Linux 4.10).
//
// A control group is a folder. Its file schemata lists the resources that the
// tasks of the group may use. A forked task starts in the group of its parent.
// The root is the default group. The package does not mount the file system.
package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"tenon.sh/tenon/internal/kernel/mounts"
)

// Default is the group of all tasks that were never moved.
const Default = "/"

// ErrNotMounted means that no resctrl file system is mounted.
var ErrNotMounted = errors.New("resctrl is not mounted")

// ErrGone means that a control group does not exist.
var ErrGone = errors.New("no such control group")

// An FS is a mounted resctrl file system. It is safe for concurrent use, but
// last_cmd_status may describe a failed write of another process.
type FS struct {
	// Root is the mount point. The mount options cdp and mba_MBps change the
	// meaning of some files.
	Root    string
	Options []string

	mu sync.Mutex // held from a write until last_cmd_status is read
}

// Find returns the mounted file system, or ErrNotMounted. If resctrl is mounted
// twice, Find returns the first mount that shows it, because all show the same
// groups. A mount that cannot be read, because another one hides it, is passed over;
// if there is no other one, the error names it.
func Find(procRoot string) (*FS, error) {
	all, damaged := mounts.Read(procRoot, "resctrl")
	errs := []error{damaged}
	for _, m := range all {
		_, err := os.Stat(filepath.Join(m.Point, "tasks")) // of the default group
		if err == nil {
			return &FS{Root: m.Point, Options: m.Options}, nil
		}
		errs = append(errs, fmt.Errorf("the resctrl mount at %s cannot be read, perhaps because another mount hides it: %w", m.Point, err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("find resctrl: %w", err)
	}
	return nil, ErrNotMounted
}

// path returns the path of a file of a group, or of the group's folder.
func (f *FS) path(group string, file ...string) string {
	if group == Default {
		group = ""
	}
	return filepath.Join(append([]string{f.Root, group}, file...)...)
}

// check rejects names that no control group can have. Such a name could lead
// outside the file system.
func check(group string) error {
	if group == Default {
		return nil
	}
	if group == "" || group == "." || group == ".." || strings.ContainsAny(group, "/\n\x00") || slices.Contains(otherFolders, group) {
		return fmt.Errorf("control group %q: want a name", group)
	}
	return nil
}

// otherFolders are the folders in the root that are not control groups.
var otherFolders = []string{"info", "mon_groups", "mon_data"}

func (f *FS) read(group string, file ...string) (string, error) {
	if err := check(group); err != nil {
		return "", err
	}
	text, err := os.ReadFile(f.path(group, file...))
	if err != nil {
		return "", f.addGone(group, err)
	}
	return string(text), nil
}

// write writes a text with a single write(2), because the kernel requires that.
func (f *FS) write(group, file, text string) error {
	if err := check(group); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out, err := os.OpenFile(f.path(group, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = out.WriteString(text)
		_ = out.Close() // nothing is buffered
	}
	if err != nil {
		return f.explain(fmt.Errorf("write %q: %w", strings.TrimSpace(text), f.addGone(group, err)))
	}
	return nil
}

// addGone adds ErrGone to err if the group does not exist.
func (f *FS) addGone(group string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENODEV) {
		return err
	}
	if _, statErr := os.Stat(f.path(group)); errors.Is(statErr, fs.ErrNotExist) {
		return fmt.Errorf("control group %s: %w: %w", group, ErrGone, err)
	}
	return err
}

// explain adds the kernel's own explanation (info/last_cmd_status) to an
// error. The caller holds f.mu.
func (f *FS) explain(err error) error {
	if errors.Is(err, ErrGone) {
		return err
	}
	text, readErr := os.ReadFile(f.path(Default, "info", "last_cmd_status"))
	status := strings.Join(strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' }), "; ")
	if readErr != nil || status == "" || status == "ok" {
		return err
	}
	return fmt.Errorf("%w (the kernel says: %s)", err, status)
}
