package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Groups lists the control groups without the default one, sorted.
func (f *FS) Groups() ([]string, error) {
	entries, err := os.ReadDir(f.Root)
	if err != nil {
		return nil, fmt.Errorf("list control groups: %w", err)
	}
	var groups []string
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(notGroups, e.Name()) {
			groups = append(groups, e.Name())
		}
	}
	return groups, nil
}

// Inode identifies the group that has this name now: a group that was removed
// and made again has another inode.
func (f *FS) Inode(group string) (uint64, error) {
	if err := check(group); err != nil {
		return 0, err
	}
	info, err := os.Stat(f.path(group))
	if err != nil {
		return 0, f.gone(group, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("inode of control group %s: this system has none", group)
	}
	return stat.Ino, nil
}

// Make makes a control group. It fails with EEXIST if the group exists, and
// with ENOSPC if the hardware has no CLOSID left. The new group may use
// everything that no other group has exclusively.
func (f *FS) Make(group string) error {
	if err := check(group); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.Mkdir(f.path(group), 0o755); err != nil {
		return f.explain(fmt.Errorf("make control group %s: %w", group, err))
	}
	return nil
}

// Remove removes a control group; its tasks go to the default one. A group that
// does not exist is no error.
func (f *FS) Remove(group string) error {
	if err := check(group); err != nil {
		return err
	}
	if group == Default {
		return errors.New("remove the default control group: it stays")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// rmdir(2), not os.Remove, which would try to unlink first.
	if err := syscall.Rmdir(f.path(group)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f.explain(fmt.Errorf("remove control group %s: %w", group, err))
	}
	return nil
}

// Tasks lists the threads in a group, ascending.
func (f *FS) Tasks(group string) ([]int, error) {
	text, err := f.read(group, "tasks")
	if err != nil {
		return nil, err
	}
	ids, err := parseTasks(text)
	if err != nil {
		return nil, fmt.Errorf("tasks of control group %s: %w", group, err)
	}
	return ids, nil
}

// parseTasks reads one id a line.
func parseTasks(text string) ([]int, error) {
	var ids []int
	for line := range strings.FieldsSeq(text) {
		n, err := strconv.ParseUint(line, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%q: want a thread id", line)
		}
		if n > 0 { // 0: a thread that our PID namespace cannot see
			ids = append(ids, int(n))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Add moves a thread into a group. A thread that has ended is no error.
func (f *FS) Add(group string, tid int) error {
	err := f.write(group, "tasks", strconv.Itoa(tid)+"\n")
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("move thread %d into control group %s: %w", tid, group, err)
	}
	return nil
}

// settleRounds bounds how often Settle lists the threads.
const settleRounds = 20

// Settle moves threads into a group until all of them are there. A child that
// is forked before its parent is moved is still in the old group, one that is
// forked afterwards is in the new: so each list is shorter than the one before,
// and the list with no thread outside is the last. Settle gives up on lists
// that do not get shorter.
//
// A thread can end after it was listed, and another process can have its number
// when it is moved. Every thread that was moved, is in the group and is not in
// the last list goes to the default group, where no task has less than in
// another.
func (f *FS) Settle(group string, threads func() ([]int, error)) error {
	moved := map[int]bool{}
	for range settleRounds {
		want, have, err := f.compare(group, threads)
		if err != nil {
			return err
		}
		settled := true
		for _, tid := range want {
			if _, there := slices.BinarySearch(have, tid); there {
				continue
			}
			settled, moved[tid] = false, true
			if err := f.Add(group, tid); err != nil {
				return err
			}
		}
		if settled {
			return f.sendBack(moved, want, have)
		}
	}
	err := fmt.Errorf("move threads into control group %s: new ones came from outside %d times in a row", group, settleRounds)
	want, have, lookErr := f.compare(group, threads)
	if lookErr != nil {
		return errors.Join(err, lookErr)
	}
	return errors.Join(err, f.sendBack(moved, want, have))
}

// compare lists the threads that should be in a group and the threads that are,
// both ascending.
func (f *FS) compare(group string, threads func() ([]int, error)) (want, have []int, err error) {
	if want, err = threads(); err != nil {
		return nil, nil, err
	}
	want = slices.Sorted(slices.Values(want))
	have, err = f.Tasks(group)
	return want, have, err
}

// sendBack moves the threads that were moved into a group by mistake to the
// default one.
func (f *FS) sendBack(moved map[int]bool, want, have []int) error {
	var errs []error
	for _, tid := range have {
		if _, wanted := slices.BinarySearch(want, tid); moved[tid] && !wanted {
			errs = append(errs, f.Add(Default, tid))
		}
	}
	return errors.Join(errs...)
}

// Shared reports whether other groups may use the resources of this group as
// well: its mode is neither exclusive nor pseudo-locked.
func (f *FS) Shared(group string) (bool, error) {
	text, err := f.read(group, "mode")
	return strings.TrimSpace(text) == "shareable", err
}
