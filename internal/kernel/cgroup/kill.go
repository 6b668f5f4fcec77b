package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/kernel/partial"
)

// The loop of the agent stands still during these waits, so they are short. A
// later tick kills the processes that are still alive.
const (
	// freezeWait is the maximum time to wait until a group is frozen, before its
	// processes are killed.
	freezeWait = 25 * time.Millisecond
	// killWait is the maximum time for which hunt also kills children that were
	// forked before their parent died.
	killWait = 25 * time.Millisecond
	// killPoll is the time between two checks.
	killPoll = 2 * time.Millisecond
)

// ProcsBelow lists the processes in the group and in all groups below it, in
// ascending order. On v1 the threads of a process may be in different groups.
// What matters then is the group of the first thread. If the group itself is
// threaded (v2), ProcsBelow fails with EOPNOTSUPP. With a partial.Error, it
// returns the processes of all groups that it could read.
func (t *Tree) ProcsBelow(path string) ([]int, error) {
	h, err := t.home(path)
	if err != nil {
		return nil, err
	}
	var all []int
	err = h.eachBelow(path, func(p string) error {
		ids, err := h.processes(p)
		if p != path && errors.Is(err, syscall.EOPNOTSUPP) {
			return nil // a threaded group: its domain, which is above it, lists its processes
		}
		all = append(all, ids...)
		return err
	})
	slices.Sort(all)
	return slices.Compact(all), err
}

func (h *hierarchy) processes(path string) ([]int, error) {
	text, err := h.read(path, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	ids, err := parseProcs(text)
	if err != nil {
		return nil, fmt.Errorf("parse cgroup.procs in %s: %w", printPath(path), err)
	}
	if h.version == 2 || len(ids) == 0 {
		return ids, nil
	}
	if text, err = h.read(path, "tasks"); err != nil {
		return nil, err
	}
	threads, err := parseProcs(text)
	if err != nil {
		return nil, fmt.Errorf("parse tasks in %s: %w", printPath(path), err)
	}
	return slices.DeleteFunc(ids, func(id int) bool {
		_, in := slices.BinarySearch(threads, id)
		return !in
	}), nil
}

// IsPopulated reports whether the group or a group below it has a process. It
// returns ErrGone if the group does not exist. On v1 it looks into each group. If
// it finds no process, but could not read all groups, it returns a partial.Error.
func (t *Tree) IsPopulated(path string) (bool, error) {
	h, err := t.home(path)
	if err != nil {
		return false, err
	}
	if h.version == 2 {
		return h.event(path, "populated")
	}
	err = h.eachBelow(path, func(p string) error {
		some, err := h.hasContent(p, "cgroup.procs")
		if some {
			return errStop
		}
		return err
	})
	if errors.Is(err, errStop) {
		return true, nil
	}
	return false, err
}

// Signal sends a signal to each process of ProcsBelow, and returns how many
// processes received it. It opens a handle (pidfd) of each process and then
// reads the list again. So it never signals a process outside the group that
// got a reused PID. It may miss a child that a process forks meanwhile. With a
// partial.Error, all processes that ProcsBelow could list received the signal.
func (t *Tree) Signal(path string, s syscall.Signal) (int, error) {
	if path == "" {
		return 0, fmt.Errorf("signal %v to %s: %w", s, printPath(path), syscall.EINVAL)
	}
	ids, err := t.ProcsBelow(path)
	if err != nil && !partial.Is(err) {
		return 0, fmt.Errorf("signal %v to %s: %w", s, path, err)
	}
	handles := make(map[int]*os.Process, len(ids))
	for _, id := range ids {
		if p, err := os.FindProcess(id); err == nil {
			defer func() { _ = p.Release() }()
			handles[id] = p
		}
	}
	var errs []error
	if ids, err = t.ProcsBelow(path); err != nil {
		errs = append(errs, fmt.Errorf("signal %v to %s: %w", s, path, err))
	}
	sent := 0
	for _, id := range ids {
		p := handles[id]
		if p == nil {
			continue // the process appeared after the handles were opened
		}
		switch err := p.Signal(s); {
		case err == nil:
			sent++
		case !errors.Is(err, os.ErrProcessDone):
			errs = append(errs, fmt.Errorf("signal %v to process %d in %s: %w", s, id, path, err))
		}
	}
	return sent, errors.Join(errs...)
}

// Kill sends SIGKILL to all processes in the group and below it, including children
// that they fork meanwhile. It uses cgroup.kill (v2, Linux 5.14). Without that file it
// freezes the group first, if possible. On v1 it finally thaws the group, because
// frozen processes do not die on v1. Kill does not wait: a process in uninterruptible
// sleep ends when it wakes up. IsPopulated reports whether processes are left.
func (t *Tree) Kill(path string) error {
	if path == "" {
		return fmt.Errorf("kill all in %s: %w", printPath(path), syscall.EINVAL)
	}
	h, err := t.home(path)
	if err != nil {
		return fmt.Errorf("kill all in %s: %w", path, err)
	}
	if h.version == 2 {
		err := h.write(path, "cgroup.kill", "1")
		if !errors.Is(err, ErrUnsupported) {
			return err
		}
	}
	return t.hunt(path)
}

// KillFreezes reports whether Kill freezes the group for a moment. If the
// caller dies in that moment, the group stays frozen.
func (t *Tree) KillFreezes(path string) bool {
	h, err := t.home(path)
	if err != nil {
		return false
	}
	if h.version == 2 {
		if _, err := os.Stat(filepath.Join(h.mount, path, "cgroup.kill")); err == nil {
			return false
		}
	}
	_, err = t.freezer()
	return err == nil
}

// hunt kills the processes of the group one by one. If possible, it freezes
// them first, because frozen processes cannot fork.
func (t *Tree) hunt(path string) error {
	frozen := t.Freeze(path, true) == nil
	for end := time.Now().Add(freezeWait); frozen && time.Now().Before(end); time.Sleep(killPoll) {
		if still, err := t.HasStopped(path); still || err != nil {
			break
		}
		// The v1 freezer misses a task that is just beginning to wait for the
		// exec of its child. A second write freezes it.
		frozen = t.Freeze(path, true) == nil
	}
	_, err := t.Signal(path, syscall.SIGKILL)
	if frozen {
		err = errors.Join(err, t.Freeze(path, false))
	}
	for end := time.Now().Add(killWait); time.Now().Before(end); time.Sleep(killPoll) {
		if n, _ := t.Signal(path, syscall.SIGKILL); n == 0 { //nolint:errcheck // the first error is returned
			break
		}
	}
	return err
}
