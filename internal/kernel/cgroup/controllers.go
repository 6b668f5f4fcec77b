package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// passedOn lists the controllers that Make enables for the children of a group.
var passedOn = []string{cpu, cpuset, memory, pids, block}

// A Subtree says what a group of v2 passes on to its children
// (cgroup.subtree_control).
type Subtree struct {
	// Inode is the inode number of the group's directory.
	Inode uint64
	// Enabled lists the controllers that the children have. Disabled lists those
	// that Make would enable for them.
	Enabled, Disabled []string
	// Busy says that the group has processes of its own, and is not the root of
	// the machine. If it passed on a controller of CPUs or tasks, the kernel would
	// make it a threaded domain: no process could enter its children then. It
	// refuses to pass on other controllers.
	Busy bool
	// Children holds the inode number of each child, by its name. It is 0 for a
	// child that cannot be looked up.
	Children map[string]uint64
}

// ReadSubtree reads what a group passes on to its children. Without a hierarchy
// of v2, it returns ErrUnsupported.
func ReadSubtree(t *Tree, path string) (s Subtree, err error) {
	h, err := unified(t)
	if err != nil {
		return s, fmt.Errorf("read cgroup.subtree_control in %s: %w", printPath(path), err)
	}
	enabled, err1 := h.read(path, "cgroup.subtree_control")
	available, err2 := h.read(path, "cgroup.controllers")
	names, err3 := h.children(path)
	if err := errors.Join(err1, err2, err3); err != nil {
		return s, err
	}
	s.Enabled, s.Busy = strings.Fields(enabled), h.busy(path)
	for _, c := range strings.Fields(available) {
		if slices.Contains(passedOn, c) && !slices.Contains(s.Enabled, c) {
			s.Disabled = append(s.Disabled, c)
		}
	}
	if s.Inode, err = h.inode(path); err != nil {
		return s, err
	}
	s.Children = make(map[string]uint64, len(names))
	for _, name := range names {
		if inode, err := h.inode(filepath.Join(path, name)); !errors.Is(err, ErrGone) {
			s.Children[name] = inode
		}
	}
	return s, nil
}

// busy returns Subtree.Busy of a group. Only the root of the machine has no
// cgroup.type. The root of a container's cgroup namespace has one.
func (h *hierarchy) busy(path string) bool {
	if _, err := h.read(path, "cgroup.type"); err != nil {
		return false
	}
	procs, err := h.read(path, "cgroup.procs")
	return err == nil && strings.TrimSpace(procs) != ""
}

// PassOn enables or disables a controller for the children of a group. The
// kernel refuses to disable it if a child passes it on to its own children
// (EBUSY). For other refusals, see enableControllers.
func PassOn(t *Tree, path, controller string, on bool) error {
	h, err := unified(t)
	if err != nil {
		return fmt.Errorf("write cgroup.subtree_control in %s: %w", printPath(path), err)
	}
	sign := "-"
	if on {
		sign = "+"
	}
	return h.write(path, "cgroup.subtree_control", sign+controller)
}

// HasSettings reports whether a group of v2 has a setting of a controller that
// differs from that of a new group. A setting that Tenon does not know counts as
// different.
func HasSettings(t *Tree, path, controller string) (bool, error) {
	h, err := unified(t)
	if err != nil {
		return false, fmt.Errorf("read the settings of %s: %w", printPath(path), err)
	}
	dir, err := h.dir(path)
	if err != nil {
		return false, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("list cgroup %s: %w", printPath(path), lookCause(dir, "", err))
	}
	for _, f := range files {
		if !isSetting(f, controller) {
			continue
		}
		text, err := h.read(path, f.Name())
		if err != nil {
			return false, err
		}
		if value, known := newGroup[f.Name()]; !known || strings.TrimSpace(text) != value {
			return true, nil
		}
	}
	return false, nil
}

// isSetting reports whether a file of a group holds a setting of a controller:
// it can be read and written, and is neither a maximum that a write resets nor a
// trigger.
func isSetting(f fs.DirEntry, controller string) bool {
	name := f.Name()
	if f.IsDir() || !strings.HasPrefix(name, controller+".") || strings.HasSuffix(name, ".peak") || strings.HasSuffix(name, ".pressure") {
		return false
	}
	const readWrite = 0o600
	info, err := f.Info()
	return err == nil && info.Mode()&readWrite == readWrite
}

// newGroup holds the settings of a new group, by file
// (Documentation/admin-guide/cgroup-v2.rst; io.bfq.weight: block/bfq-cgroup.c).
var newGroup = map[string]string{
	"cpu.weight": "100", "cpu.weight.nice": "0", "cpu.idle": "0", "cpu.max": "max 100000", "cpu.max.burst": "0",
	"cpu.uclamp.min": "0.00", "cpu.uclamp.max": "max",
	"cpuset.cpus": "", "cpuset.mems": "", "cpuset.cpus.exclusive": "", "cpuset.cpus.partition": "member",
	"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max", "memory.oom.group": "0",
	"memory.swap.high": "max", "memory.swap.max": "max", "memory.zswap.max": "max", "memory.zswap.writeback": "1",
	"pids.max": "max",
	"io.max":   "", "io.latency": "", "io.weight": "default 100", "io.bfq.weight": "default 100", "io.prio.class": "no-change",
}

// unified returns the hierarchy of v2. If no controller of Tenon is in it, the
// error is ErrUnsupported.
func unified(t *Tree) (*hierarchy, error) {
	for _, h := range t.hierarchies {
		if h.version == 2 {
			return h, nil
		}
	}
	return nil, fmt.Errorf("no controller is on cgroup v2: %w", ErrUnsupported)
}

// inode returns the inode number of a group's directory in this hierarchy.
func (h *hierarchy) inode(path string) (uint64, error) {
	dir, err := h.dir(path)
	if err != nil {
		return 0, err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("find cgroup %s: %w", printPath(path), lookCause(dir, "", err))
	}
	return st.Ino, nil
}
