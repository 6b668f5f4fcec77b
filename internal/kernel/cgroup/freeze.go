package cgroup

import (
	"fmt"
	"strings"
)

// IsFrozen reports whether the group itself is set to frozen (cgroup.freeze,
// Linux 5.2; v1: freezer.self_freezing), whatever its ancestors are. It returns
// ErrGone if the group is not in v1's freezer hierarchy, and ErrUnsupported if
// the node has no freezer.
func (t *Tree) IsFrozen(path string) (bool, error) {
	h, err := t.freezer()
	if err != nil {
		return false, fmt.Errorf("read the freezer of %s: %w", printPath(path), err)
	}
	file := "cgroup.freeze"
	if h.version == 1 {
		file = v1SelfFreezing
	}
	text, err := h.read(path, file)
	return strings.TrimSpace(text) == "1", err
}

// Freeze freezes or thaws a group and all groups below it, and does not wait. A
// task stops when it next leaves the kernel. A task in uninterruptible sleep
// may never do so. HasStopped reports whether all tasks have stopped.
func (t *Tree) Freeze(path string, frozen bool) error {
	h, err := t.freezer()
	if err != nil {
		return fmt.Errorf("freeze %s: %w", printPath(path), err)
	}
	if h.version == 1 {
		return h.v1Freeze(path, frozen)
	}
	value := "0"
	if frozen {
		value = "1"
	}
	return h.write(path, "cgroup.freeze", value)
}

// HasStopped reports whether all tasks of a frozen group have stopped (frozen in
// cgroup.events; v1: freezer.state).
func (t *Tree) HasStopped(path string) (bool, error) {
	h, err := t.freezer()
	if err != nil {
		return false, fmt.Errorf("read the freezer of %s: %w", printPath(path), err)
	}
	if h.version == 1 {
		return h.v1Still(path)
	}
	return h.event(path, "frozen")
}

// freezer returns the hierarchy that can freeze groups. On v1 this is the
// hierarchy of the freezer controller. On v2 every group has cgroup.freeze.
func (t *Tree) freezer() (*hierarchy, error) {
	if t.Version() == 2 {
		return t.hierarchies[0], nil
	}
	return t.hierarchy(freezer)
}

// event reads a flag of cgroup.events.
func (h *hierarchy) event(path, name string) (bool, error) {
	text, err := h.read(path, "cgroup.events")
	if err != nil {
		return false, err
	}
	flags, err := flatFile(name)(text)
	if err != nil {
		return false, fmt.Errorf("parse cgroup.events in %s: %w", printPath(path), err)
	}
	flag, known := flags[name]
	if !known {
		return false, fmt.Errorf("parse cgroup.events in %s: no %s: %w", printPath(path), name, ErrUnsupported)
	}
	return flag == 1, nil
}
