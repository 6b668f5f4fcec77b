package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// removeWait is the maximum time for which Remove waits until a group has no
// tasks. Killed tasks stay in the group until they are reaped.
const removeWait = 2 * time.Second

// Make makes a group and its missing ancestors in every hierarchy. On v2 it
// enables cpu, cpuset, memory, pids and io in the ancestors, as far as the
// kernel permits. The group lacks the files of a controller that the kernel
// does not permit. On v1 a new group gets the CPUs and memory nodes of its
// parent, because otherwise no task could enter it. Make does not change an
// existing group. If it fails, it removes the groups that it made.
func (t *Tree) Make(path string) error {
	var made []string
	for _, h := range t.hierarchies {
		dirs, err := h.makeAll(path)
		made = append(made, dirs...)
		if err == nil {
			continue
		}
		for _, dir := range slices.Backward(made) {
			_ = syscall.Rmdir(dir)
		}
		return fmt.Errorf("make cgroup %s: %w", printPath(path), err)
	}
	return nil
}

// makeAll returns the directories that it made, parents first.
func (h *hierarchy) makeAll(path string) (made []string, err error) {
	if _, err := h.dir(path); err != nil || path == "" {
		return nil, err
	}
	parent := ""
	for name := range strings.SplitSeq(path, "/") {
		if h.version == 2 {
			h.enableControllers(parent)
		}
		group := filepath.Join(parent, name)
		dir := filepath.Join(h.mount, group)
		err := os.Mkdir(dir, 0o755)
		switch {
		case err == nil:
			made = append(made, dir)
			if err := h.v1FillCPUSet(parent, group); err != nil {
				return made, err
			}
		case !errors.Is(err, os.ErrExist):
			return made, err
		}
		parent = group
	}
	return made, nil
}

// enableControllers enables one controller at a time, because the kernel
// refuses a list if it refuses one controller in it. A refused controller stays
// disabled (EBUSY: the group has processes; EACCES: it is not delegated to us).
// A busy group gets no controller (see Subtree.Busy).
func (h *hierarchy) enableControllers(path string) {
	if h.busy(path) {
		return
	}
	enabled, _ := h.read(path, "cgroup.subtree_control") //nolint:errcheck // enabling one again changes nothing
	for _, c := range passedOn {
		if !slices.Contains(strings.Fields(enabled), c) {
			_ = h.write(path, "cgroup.subtree_control", "+"+c)
		}
	}
}

// Remove removes a group without children from every hierarchy. It waits up to
// 2 s for tasks that are ending, and then fails with EBUSY. It returns nil if
// the group does not exist.
func (t *Tree) Remove(path string) error {
	deadline := time.Now().Add(removeWait)
	var errs []error
	for _, h := range t.hierarchies {
		errs = append(errs, h.remove(path, deadline))
	}
	return errors.Join(errs...)
}

// RemoveAll removes a group and all groups below it, deepest first. It does not
// kill processes. If a group has processes, RemoveAll fails with EBUSY. It
// removes all groups that it can remove.
func (t *Tree) RemoveAll(path string) error {
	deadline := time.Now().Add(removeWait)
	var errs []error
	for _, h := range t.hierarchies {
		errs = append(errs, h.removeAll(path, deadline))
	}
	return errors.Join(errs...)
}

func (h *hierarchy) removeAll(path string, deadline time.Time) error {
	children, err := h.children(path)
	var errs []error
	if err != nil && !errors.Is(err, ErrGone) {
		errs = append(errs, err)
	}
	for _, name := range children {
		errs = append(errs, h.removeAll(filepath.Join(path, name), deadline))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return h.remove(path, deadline)
}

func (h *hierarchy) remove(path string, deadline time.Time) error {
	dir, err := h.dir(path)
	if err != nil {
		return err
	}
	if path == "" {
		return fmt.Errorf("remove %s: %w", printPath(path), syscall.EINVAL)
	}
	for {
		err := syscall.Rmdir(dir)
		if err == nil || err == syscall.ENOENT {
			return nil
		}
		children, listErr := h.children(path)
		if err != syscall.EBUSY || listErr != nil || len(children) > 0 || time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s (%s): %w", path, dir, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Exists reports whether the group exists in any hierarchy. If it cannot find
// out, it returns true.
func (t *Tree) Exists(path string) bool {
	_, err := t.home(path)
	return !errors.Is(err, ErrGone) && !errors.Is(err, syscall.EINVAL)
}

// home returns the hierarchy in which a group is looked up. This is the one of
// the cpu controller or, if the group is not in it, the first that has the
// group. On v1 a group may exist in some hierarchies only.
func (t *Tree) home(path string) (*hierarchy, error) {
	h, _, err := find(t, path)
	return h, err
}

// find returns the same hierarchy as home, and the result of stat(2) for the
// group's directory in it. It returns ErrGone only if the group is in no
// hierarchy. A group that cannot be looked up may exist.
func find(t *Tree, path string) (*hierarchy, syscall.Stat_t, error) {
	var st syscall.Stat_t
	why := ErrGone
	for _, h := range t.hierarchies {
		dir, err := h.dir(path)
		if err != nil {
			return nil, st, err
		}
		switch err := syscall.Stat(dir, &st); {
		case err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
			return h, st, nil
		case err != nil && err != syscall.ENOENT && err != syscall.ENOTDIR:
			why = err
		}
	}
	return nil, st, fmt.Errorf("find cgroup %s: %w", printPath(path), why)
}

// hasNoChildren reports whether a directory contains no other directory. On cgroupfs, a
// directory has two links and one more for each child (fs/kernfs/inode.c:
// kernfs_refresh_inode). On file systems that do not count children, it has one link.
func hasNoChildren(st syscall.Stat_t) bool { return st.Nlink == 2 }

// Children lists the names of the groups directly below path, sorted.
func (t *Tree) Children(path string) ([]string, error) {
	h, st, err := find(t, path)
	if err != nil || hasNoChildren(st) {
		return nil, err
	}
	return h.children(path)
}

func (h *hierarchy) children(path string) ([]string, error) {
	dir, err := h.dir(path)
	if err != nil {
		return nil, err
	}
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) == nil && hasNoChildren(st) {
		return nil, nil // the directory contains many files, so it is not read
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list cgroup %s: %w", printPath(path), lookCause(dir, "", err))
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Inode returns the inode number of the group's directory (on v1 in the
// hierarchy of cpu). A group that is removed and made again has another number.
func (t *Tree) Inode(path string) (uint64, error) {
	_, st, err := find(t, path)
	return st.Ino, err
}
