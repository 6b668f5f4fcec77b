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

// Groups lists the control groups in sorted order, without the default group.
func (f *FS) Groups() ([]string, error) {
	entries, err := os.ReadDir(f.Root)
	if err != nil {
		return nil, fmt.Errorf("list control groups: %w", err)
	}
	var groups []string
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(otherFolders, e.Name()) {
			groups = append(groups, e.Name())
		}
	}
	return groups, nil
}

// Inode returns the inode number of a group. A group that is removed and made
// again has another number.
func (f *FS) Inode(group string) (uint64, error) {
	if err := check(group); err != nil {
		return 0, err
	}
	info, err := os.Stat(f.path(group))
	if err != nil {
		return 0, f.addGone(group, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("inode of control group %s: the operating system reports no inode", group)
	}
	return stat.Ino, nil
}

// Make makes a control group. If the group exists, it fails with EEXIST. If the
// hardware has no free CLOSID, it fails with ENOSPC. The new group may use all
// resources except those of exclusive groups.
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

// Remove removes a control group, whose tasks move to the default group. If the
// group does not exist, Remove returns nil.
func (f *FS) Remove(group string) error {
	if err := check(group); err != nil {
		return err
	}
	if group == Default {
		return errors.New("the default control group cannot be removed")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// Call rmdir(2) directly, because os.Remove would try to unlink first.
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

// parseTasks reads one thread id per line.
func parseTasks(text string) ([]int, error) {
	var ids []int
	for line := range strings.FieldsSeq(text) {
		n, err := strconv.ParseUint(line, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%q: want a thread id", line)
		}
		if n > 0 { // 0 is a thread outside our PID namespace
			ids = append(ids, int(n))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Add moves a thread into a group. If the thread has ended, this is no error.
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

// settleRounds is the maximum number of lists that Settle requests.
const settleRounds = 20

// Settle moves threads into a group until all of them are in it. The function
// threads lists them. If it returns threads and an error, it has missed some:
// Settle moves the others, moves none back, and returns the error. A child inherits the group of its parent: if it is forked
// before the parent is moved, it must be moved, too. So each list has fewer
// threads to move. Settle fails after settleRounds lists.
//
// A thread can end after it was listed, and a thread of another process can get
// its tid before the move. Therefore Settle looks for moved threads that are in
// the group but not in the last list. It moves them to the default group, which
// never has fewer resources than another group.
func (f *FS) Settle(group string, threads func() ([]int, error)) error {
	moved := map[int]bool{}
	for range settleRounds {
		want, have, err := f.compare(group, threads)
		if err != nil && len(want) == 0 {
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
		if settled && err != nil {
			return err
		}
		if settled {
			return f.sendBack(moved, want, have)
		}
	}
	err := fmt.Errorf("move threads into control group %s: %d lists in a row had new threads outside the group", group, settleRounds)
	want, have, lookErr := f.compare(group, threads)
	if lookErr != nil {
		return errors.Join(err, lookErr)
	}
	return errors.Join(err, f.sendBack(moved, want, have))
}

// compare returns the threads that should be in a group (want) and those that
// are in it (have), both ascending. If threads has missed some, compare returns
// both lists and the error.
func (f *FS) compare(group string, threads func() ([]int, error)) (want, have []int, err error) {
	want, missed := threads()
	if missed != nil && len(want) == 0 {
		return nil, nil, missed
	}
	have, err = f.Tasks(group)
	if err != nil {
		return nil, nil, err
	}
	return slices.Sorted(slices.Values(want)), have, missed
}

// sendBack moves threads that were moved into a group by mistake to the default
// group.
func (f *FS) sendBack(moved map[int]bool, want, have []int) error {
	var errs []error
	for _, tid := range have {
		if _, wanted := slices.BinarySearch(want, tid); moved[tid] && !wanted {
			errs = append(errs, f.Add(Default, tid))
		}
	}
	return errors.Join(errs...)
}

// Shared reports whether other groups may use the resources of this group, too.
// It returns false if the group's mode is exclusive or pseudo-locked.
func (f *FS) Shared(group string) (bool, error) {
	text, err := f.read(group, "mode")
	return strings.TrimSpace(text) == "shareable", err
}
