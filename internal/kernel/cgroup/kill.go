package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// The loop of the agent stands still for these waits, so they are short: what
// is not dead then is killed again.
const (
	// stillWait bounds the wait for a group to stand still before its
	// processes are killed.
	stillWait = 25 * time.Millisecond
	// killWait bounds the hunt for processes of a group that fork.
	killWait = 25 * time.Millisecond
	// killPoll is how often it is looked.
	killPoll = 2 * time.Millisecond
)

// ProcsBelow lists the processes in the group and in all below it, ascending.
// On v1, where threads of one process may be in several groups, it is those
// whose first thread is here.
func (t *Tree) ProcsBelow(path string) ([]int, error) {
	h, err := t.home(path)
	if err != nil {
		return nil, err
	}
	var all []int
	err = h.eachBelow(path, func(p string) error {
		ids, err := h.processes(p)
		all = append(all, ids...)
		return err
	})
	slices.Sort(all)
	return slices.Compact(all), err
}

// eachBelow visits a group and all below it. One that goes away meanwhile is
// left out.
func (h *hierarchy) eachBelow(path string, visit func(string) error) error {
	if err := visit(path); err != nil {
		if errors.Is(err, ErrGone) {
			return nil
		}
		return err
	}
	children, err := h.children(path)
	if err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	for _, c := range children {
		if err := h.eachBelow(filepath.Join(path, c), visit); err != nil {
			return err
		}
	}
	return nil
}

func (h *hierarchy) processes(path string) ([]int, error) {
	text, err := h.read(path, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	ids, err := parseProcs(text)
	if err != nil {
		return nil, fmt.Errorf("parse cgroup.procs in %s: %w", shown(path), err)
	}
	if h.version == 2 || len(ids) == 0 {
		return ids, nil
	}
	if text, err = h.read(path, "tasks"); err != nil {
		return nil, err
	}
	threads, err := parseProcs(text)
	if err != nil {
		return nil, fmt.Errorf("parse tasks in %s: %w", shown(path), err)
	}
	return slices.DeleteFunc(ids, func(id int) bool {
		_, in := slices.BinarySearch(threads, id)
		return !in
	}), nil
}

// Populated reports whether any process lives in the group or below it. A
// group that does not exist gives ErrGone.
func (t *Tree) Populated(path string) (bool, error) {
	h, err := t.home(path)
	if err != nil {
		return false, err
	}
	if h.version == 2 {
		return h.event(path, "populated")
	}
	found := errors.New("found")
	err = h.eachBelow(path, func(p string) error {
		some, err := h.some(p, "cgroup.procs")
		if some {
			return found
		}
		return err
	})
	if errors.Is(err, found) {
		return true, nil
	}
	return false, err
}

// Signal sends a signal to each process of ProcsBelow, and returns how many
// got it. Signal opens a handle (pidfd) of each process and then reads the list
// again, so that it never signals a process outside the group that has reused a
// PID. A process that forks meanwhile may leave a child without the signal.
func (t *Tree) Signal(path string, s syscall.Signal) (int, error) {
	if path == "" {
		return 0, fmt.Errorf("signal %v to %s: %w", s, shown(path), syscall.EINVAL)
	}
	ids, err := t.ProcsBelow(path)
	if err != nil {
		return 0, fmt.Errorf("signal %v to %s: %w", s, path, err)
	}
	handles := make(map[int]*os.Process, len(ids))
	for _, id := range ids {
		if p, err := os.FindProcess(id); err == nil {
			defer func() { _ = p.Release() }()
			handles[id] = p
		}
	}
	if ids, err = t.ProcsBelow(path); err != nil {
		return 0, fmt.Errorf("signal %v to %s: %w", s, path, err)
	}
	sent := 0
	var errs []error
	for _, id := range ids {
		p := handles[id]
		if p == nil {
			continue // it came after the handles
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

// Kill sends SIGKILL to all in the group and below it, also to what forks
// meanwhile: with cgroup.kill (v2, Linux 5.14), or else by freezing the group
// first, where that is possible. It leaves a group that v1 has frozen thawed,
// since nothing dies there frozen. It does not wait for the end: a process in
// uninterruptible sleep ends when it wakes up; Populated tells.
func (t *Tree) Kill(path string) error {
	if path == "" {
		return fmt.Errorf("kill all in %s: %w", shown(path), syscall.EINVAL)
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

// KillFreezes reports whether Kill freezes the group for a moment: whoever dies
// just then leaves it frozen.
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

// hunt kills one by one. A group that stands still cannot fork.
func (t *Tree) hunt(path string) error {
	frozen := t.Freeze(path, true) == nil
	for end := time.Now().Add(stillWait); frozen && time.Now().Before(end); time.Sleep(killPoll) {
		if still, err := t.Still(path); still || err != nil {
			break
		}
		// v1 misses a task that begins to wait for the exec of its child just
		// then, and asks it when it is told again.
		frozen = t.Freeze(path, true) == nil
	}
	_, err := t.Signal(path, syscall.SIGKILL)
	if frozen {
		err = errors.Join(err, t.Freeze(path, false))
	}
	for end := time.Now().Add(killWait); time.Now().Before(end); time.Sleep(killPoll) {
		n, again := t.Signal(path, syscall.SIGKILL)
		if n == 0 || again != nil {
			break
		}
	}
	return err
}
