// This file identifies the processes that the journal records, and finds their
// descendants. A pid alone does not identify a process, because the kernel
// reuses pids.

package change

import (
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/journal"
)

// Identify returns the pid of a process with its start time. The kernel may
// reuse a pid, but not with the same start time.
func Identify(fs proc.FS, pid int) (journal.Process, error) {
	s, err := fs.PIDStat(pid)
	return journal.Process{PID: pid, Start: int64(s.StartTime)}, err
}

// Alive reports whether the process still runs. A zombie does not run.
func Alive(fs proc.FS, p journal.Process) bool {
	s, err := fs.PIDStat(p.PID)
	return err == nil && int64(s.StartTime) == p.Start && s.State != 'Z' && s.State != 'X'
}

// FindProcess returns the pid of a living process by what it knows of itself. In a PID
// namespace below that of this process, it knows itself by another pid.
func FindProcess(fs proc.FS, p journal.Process) (pid int, alive bool) {
	if Alive(fs, p) {
		return p.PID, true
	}
	pids, err := fs.PIDs()
	if err != nil {
		return 0, false
	}
	for _, pid := range pids {
		if !Alive(fs, journal.Process{PID: pid, Start: p.Start}) {
			continue
		}
		if inner, err := fs.InnerPIDs(pid); err == nil && slices.Contains(inner, p.PID) {
			return pid, true
		}
	}
	return 0, false
}

// Signal sends a signal to the process p, and to no other. It opens a pidfd
// before it compares the start time, so that it cannot hit a new process with
// the same pid. If the process has ended, Signal does nothing.
func Signal(fs proc.FS, p journal.Process, s syscall.Signal) {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return
	}
	defer func() { _ = handle.Release() }()
	if Alive(fs, p) {
		_ = handle.Signal(s)
	}
}

// AddDescendants adds to found all descendants of the processes in found.
func AddDescendants(fs proc.FS, found map[int]journal.Process) {
	pids, err := fs.PIDs()
	if err != nil {
		return
	}
	children := map[int][]journal.Process{}
	for _, pid := range pids {
		if s, err := fs.PIDStat(pid); err == nil && !strings.ContainsRune("ZX", rune(s.State)) {
			children[s.PPID] = append(children[s.PPID], journal.Process{PID: pid, Start: int64(s.StartTime)})
		}
	}
	next := slices.Collect(maps.Keys(found))
	for len(next) > 0 {
		parent := next[0]
		next = next[1:]
		for _, c := range children[parent] {
			if _, known := found[c.PID]; !known {
				found[c.PID] = c
				next = append(next, c.PID)
			}
		}
	}
}

// Living returns the Tenon processes that have written entries of the journal and
// still run, by their pids.
func Living(fs proc.FS, state journal.State) []journal.Session {
	all := slices.DeleteFunc(Sessions(state), func(s journal.Session) bool { return !Alive(fs, author(s)) })
	slices.SortFunc(all, func(a, b journal.Session) int { return a.PID - b.PID })
	return all
}

// Sessions returns the Tenon processes that have written entries of the journal.
func Sessions(state journal.State) []journal.Session {
	all := map[journal.Session]bool{}
	for _, t := range state.Touches {
		all[t.By] = true
	}
	for _, s := range state.Groups {
		all[s] = true
	}
	for _, s := range state.Processes {
		all[s] = true
	}
	for _, c := range state.Controls {
		all[c.By] = true
	}
	for _, e := range state.Enabled {
		all[e.By] = true
	}
	return slices.Collect(maps.Keys(all))
}
