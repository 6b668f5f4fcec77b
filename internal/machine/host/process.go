package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/subtree"
)

const (
	// grace is how long a process has to end by itself after SIGTERM.
	grace = 2 * time.Second
	// patience is how long a restore waits in total.
	patience = 10 * time.Second
	// poll is the interval of these checks.
	poll = 10 * time.Millisecond
)

// endProcesses ends the processes that labs in scope have started: SIGTERM, and
// SIGKILL after the grace period. It repeats until none is left, because a
// process may have started another meanwhile.
func (h *Host) endProcesses(ctx context.Context, state journal.State, in scope, r *Report) error {
	ended := map[int]bool{}
	start := time.Now()
	asked := map[journal.Process]bool{}
	var left map[int]journal.Process
	for {
		left = h.victims(state, in)
		if len(left) == 0 {
			break
		}
		for pid, p := range left {
			ended[pid] = true
			switch {
			case time.Since(start) > grace:
				h.signal(p, syscall.SIGKILL)
			case !asked[p]:
				h.signal(p, syscall.SIGTERM)
				asked[p] = true
			}
		}
		if time.Since(start) > patience || ctx.Err() != nil {
			break
		}
		time.Sleep(poll)
	}
	r.Killed = slices.Sorted(maps.Keys(ended))
	var errs []error
	if len(left) > 0 {
		errs = append(errs, fmt.Errorf("end the processes of the lab: %v still run after %v", slices.Sorted(maps.Keys(left)), time.Since(start).Round(time.Millisecond)))
	}
	for p, by := range state.Processes {
		if _, runs := left[p.PID]; in(by) && !runs {
			errs = append(errs, h.journal.Reaped(p))
		}
	}
	return errors.Join(errs...)
}

// signal sends a signal to exactly this process: it opens a pidfd first and
// then compares the start time, so that a reused pid is not hit. An ended
// process is no error.
func (h *Host) signal(p journal.Process, s syscall.Signal) {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return
	}
	defer func() { _ = handle.Release() }()
	if h.alive(p) {
		_ = handle.Signal(s)
	}
}

// victims returns the processes that a restore ends: those that labs in scope
// journaled, their descendants, and all in the labs' cgroups, but never Tenon's
// own.
func (h *Host) victims(state journal.State, in scope) map[int]journal.Process {
	found := map[int]journal.Process{}
	add := func(pid int) {
		if p, err := h.process(pid); err == nil && h.alive(p) {
			found[pid] = p
		}
	}
	for p, by := range state.Processes {
		if by.Lab && in(by) && h.alive(p) {
			found[p.PID] = p
		}
	}
	for p, by := range state.Groups {
		if by.Lab && in(by) {
			subtree.EachProcess(h.tree, p, add)
		}
	}
	if len(found) > 0 {
		h.addDescendants(found)
	}
	for _, s := range sessions(state) {
		if found[s.PID].Start == s.Start {
			delete(found, s.PID)
		}
	}
	delete(found, os.Getpid())
	return found
}

// addDescendants adds all descendants of the found processes.
func (h *Host) addDescendants(found map[int]journal.Process) {
	pids, err := h.fs.PIDs()
	if err != nil {
		return
	}
	children := map[int][]journal.Process{}
	for _, pid := range pids {
		if s, err := h.fs.PIDStat(pid); err == nil && !strings.ContainsRune("ZX", rune(s.State)) {
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

// sessions returns the Tenon processes in the journal.
func sessions(state journal.State) []journal.Session {
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
	return slices.Collect(maps.Keys(all))
}
