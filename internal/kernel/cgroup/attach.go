package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Attach moves a process with all its threads into the group, in every hierarchy in
// which the group exists. It begins with the hierarchy of cpuset, because there the
// kernel refuses a group without CPUs or memory nodes (ENOSPC). After an error the
// process may be in the group in some hierarchies only.
func (t *Tree) Attach(path string, pid int) error {
	return t.attach(path, pid, func(*hierarchy) string { return "cgroup.procs" })
}

// AttachThread moves a single thread. On v2 the group must be threaded.
// Otherwise AttachThread fails with EOPNOTSUPP or EINVAL.
func (t *Tree) AttachThread(path string, tid int) error {
	return t.attach(path, tid, func(h *hierarchy) string {
		if h.version == 1 {
			return "tasks"
		}
		return "cgroup.threads"
	})
}

func (t *Tree) attach(path string, id int, file func(*hierarchy) string) error {
	if _, err := t.home(path); err != nil {
		return fmt.Errorf("attach %d: %w", id, err)
	}
	order := slices.Clone(t.hierarchies)
	slices.SortStableFunc(order, func(a, b *hierarchy) int {
		switch {
		case a == b:
			return 0
		case a == t.byController[cpuset]:
			return -1
		case b == t.byController[cpuset]:
			return 1
		}
		return 0
	})
	for _, h := range order {
		err := h.write(path, file(h), strconv.Itoa(id))
		switch {
		case errors.Is(err, syscall.ENOSPC):
			return fmt.Errorf("%w: cpuset.cpus or cpuset.mems of the group is empty", err)
		case err != nil && !errors.Is(err, ErrGone):
			return err
		}
	}
	return nil
}

// Procs lists the processes of the group itself in ascending order, without
// those of the groups below it.
func (t *Tree) Procs(path string) ([]int, error) {
	h, err := t.home(path)
	if err != nil {
		return nil, err
	}
	text, err := h.read(path, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	ids, err := parseProcs(text)
	if err != nil {
		return nil, fmt.Errorf("parse cgroup.procs in %s: %w", printPath(path), err)
	}
	return ids, nil
}

// parseProcs reads one process id per line. The ids may be in any order, and
// may appear twice. A process outside our PID namespace has the id 0.
func parseProcs(text string) ([]int, error) {
	var ids []int
	for line := range strings.FieldsSeq(text) {
		n, err := strconv.ParseUint(line, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%q: want a process id", line)
		}
		if n != 0 {
			ids = append(ids, int(n))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}
