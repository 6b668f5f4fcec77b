package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/psi"
)

// Trigger makes a trigger for a group and a resource (cpu, memory or io): see
// psi.Watch. It ends with ErrGone when the group is removed. Trigger returns
// ErrUnsupported on v1, and if pressure stall information is off for cgroups.
func (t *Tree) Trigger(path, resource string, stall, window time.Duration) (*psi.Trigger, error) {
	h, file := t.hierarchies[0], resource+".pressure"
	if h.version == 1 {
		return nil, fmt.Errorf("watch %s in %s: cgroup v1 has no pressure: %w", file, printPath(path), ErrUnsupported)
	}
	dir, err := h.dir(path)
	if err != nil {
		return nil, err
	}
	tr, err := psi.Watch(filepath.Join(dir, file), stall, window, ErrGone)
	if err != nil {
		return nil, fmt.Errorf("watch %s in %s for %v in %v: %w", file, printPath(path), stall, window, cause(dir, err))
	}
	return tr, nil
}

// NodeTrigger makes a trigger for the whole node, from pressure/RESOURCE below
// procRoot. It does not need cgroup v2.
func NodeTrigger(procRoot, resource string, stall, window time.Duration) (*psi.Trigger, error) {
	file := filepath.Join(procRoot, "pressure", resource)
	tr, err := psi.Watch(file, stall, window, ErrGone)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s for %v in %v: %w", file, stall, window, err)
	}
	return tr, nil
}
