package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/subtree"
)

const (
	// grace is the time that a process may take to end after SIGTERM.
	grace = 2 * time.Second
	// patience is the total time that a restore waits for processes to end.
	patience = 10 * time.Second
	// poll is the time between two checks whether the processes have ended.
	poll = 10 * time.Millisecond
)

// endProcesses ends the processes that labs in scope have started. It sends
// SIGTERM and, after the grace period, SIGKILL. It repeats this until no such
// process is left, because a process may start another one before it ends.
func (x *Restorer) endProcesses(ctx context.Context, state journal.State, in scope, r *Report) error {
	ended := map[int]bool{}
	start := time.Now()
	asked := map[journal.Process]bool{}
	var left map[int]journal.Process
	for {
		left = x.victims(state, in)
		if len(left) == 0 {
			break
		}
		for pid, p := range left {
			ended[pid] = true
			switch {
			case time.Since(start) > grace:
				change.Signal(x.o.FS, p, syscall.SIGKILL)
			case !asked[p]:
				change.Signal(x.o.FS, p, syscall.SIGTERM)
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
			errs = append(errs, x.o.Journal.Reaped(p))
		}
	}
	return errors.Join(errs...)
}

// victims returns the processes that a restore ends: those that labs in scope
// journaled, their descendants, and all processes in the cgroups of these labs.
// Tenon's own processes are never among them.
func (x *Restorer) victims(state journal.State, in scope) map[int]journal.Process {
	found := map[int]journal.Process{}
	add := func(pid int) {
		if p, err := change.Identify(x.o.FS, pid); err == nil && change.Alive(x.o.FS, p) {
			found[pid] = p
		}
	}
	for p, by := range state.Processes {
		if by.Lab && in(by) && change.Alive(x.o.FS, p) {
			found[p.PID] = p
		}
	}
	for p, by := range state.Groups {
		if by.Lab && in(by) {
			subtree.EachProcess(x.o.Tree, p, add)
		}
	}
	if len(found) > 0 {
		change.AddDescendants(x.o.FS, found)
	}
	for _, s := range change.Sessions(state) {
		if found[s.PID].Start == s.Start {
			delete(found, s.PID)
		}
	}
	delete(found, os.Getpid())
	return found
}
