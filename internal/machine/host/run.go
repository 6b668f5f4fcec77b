package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/exempt"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// readRun reads whether a cgroup is Running or Frozen. Without a freezer it is
// Running.
func (h *Host) readRun(p string) (node.Run, error) {
	frozen, err := h.tree.Frozen(p)
	switch {
	case frozen:
		return node.Frozen, nil
	case err == nil:
		return node.Running, nil
	case (errors.Is(err, cgroup.ErrUnsupported) || errors.Is(err, cgroup.ErrGone)) && h.tree.Exists(p):
		return node.Running, nil
	}
	return "", err
}

// writeRun freezes or thaws a cgroup.
func (h *Host) writeRun(p node.CgroupPath, v node.Run) error {
	if v == node.Frozen {
		if err := h.mayStop(p); err != nil {
			return fmt.Errorf("freeze %s: %w", p, err)
		}
		if err := h.isolation.Exempt().Add(p, time.Time{}, ""); err != nil {
			return fmt.Errorf("freeze %s: %w", p, err)
		}
	}
	err := h.tree.Freeze(string(p), v == node.Frozen)
	if v != node.Frozen || err != nil {
		h.isolation.Exempt().End(p)
	}
	return err
}

// end asks all processes in and below a cgroup to end, or kills them. That
// cannot be undone and is not journaled. It first thaws a cgroup that Tenon has
// frozen, and forgets the freeze.
func (h *Host) end(k node.Knob, v node.Run) error {
	if err := h.mayStop(k.Cgroup); err != nil {
		return err
	}
	if err := h.Prepare(k); err != nil {
		return err
	}
	if v == node.Ended {
		h.isolation.Exempt().Killed(k.Cgroup)
		_ = h.isolation.Exempt().ClearIdle(k.Cgroup)
	}
	killed := h.sight.follow(k, v)
	if v == node.AskedToEnd {
		_, err := h.tree.Signal(string(k.Cgroup), syscall.SIGTERM)
		return err
	}
	if err := h.kill(k); err != nil {
		return err
	}
	if lives, err := h.tree.Populated(string(k.Cgroup)); err == nil && lives && killed {
		return fmt.Errorf("%s has processes that do not die of SIGKILL: they are in uninterruptible sleep, or fork faster than they can be ended", k.Cgroup)
	}
	return nil
}

// Prepare makes a cgroup ready to end, by any sender's request: a process has
// to run in order to end. It thaws a cgroup that Tenon froze, forgets the
// freeze, and exempts the cgroup from isolation. If only the last part fails,
// the cgroup ends later.
func (h *Host) Prepare(k node.Knob) error {
	if err := h.release(k); err != nil {
		return err
	}
	_ = errors.Join(h.isolation.Exempt().Add(k.Cgroup, h.now().Add(exempt.For), node.AskedToEnd), h.marks.Unmark(k.Cgroup))
	return nil
}

// Thaw thaws all that Tenon froze, before a time without an agent.
func (h *Host) Thaw() error {
	touches, err := h.ownTouches()
	if err != nil {
		return err
	}
	var errs []error
	for k := range touches {
		if k.File == node.FileRun {
			errs = append(errs, h.release(k))
		}
	}
	return errors.Join(errs...)
}

// kill kills all processes in and below a cgroup. If that needs a short freeze,
// the journal holds it until the thaw.
func (h *Host) kill(k node.Knob) error {
	p := string(k.Cgroup)
	before, err := h.knobs.Read(k)
	if err != nil {
		return err
	}
	if before == node.Frozen || !h.tree.KillFreezes(p) { // frozen by another component
		return h.tree.Kill(p)
	}
	inode, err := h.knobInode(k)
	if err != nil {
		return err
	}
	// The kill must also work while the journal is full.
	err = errors.Join(h.journal.Intend(k, inode, before, node.Frozen), h.tree.Kill(p))
	if now, readErr := h.knobs.Read(k); readErr == nil && now == node.Frozen {
		return err // a restore tries the thaw again
	}
	return errors.Join(err, h.journal.Forget(k))
}

// mayStop refuses cgroups that contain PID 1, this process, a live Tenon
// session or its watchdog.
func (h *Host) mayStop(p node.CgroupPath) error {
	if p == "" {
		return isolation.ErrOwn
	}
	pids, err := h.tree.ProcsBelow(string(p))
	if err != nil {
		return err
	}
	state, err := h.journal.State()
	if err != nil {
		return err
	}
	own := []int{1, os.Getpid()}
	for _, s := range sessions(state) {
		if h.alive(journal.Process{PID: s.PID, Start: s.Start}) {
			own = append(own, s.PID)
		}
	}
	if h.spare != nil {
		own = append(own, h.spare()...)
	}
	for _, pid := range pids {
		if slices.Contains(own, pid) {
			return fmt.Errorf("process %d: %w", pid, isolation.ErrOwn)
		}
	}
	return nil
}

// runKnobs lists the knobs that stop best-effort workloads.
func runKnobs(workloads []node.Workload) []node.Knob {
	var all []node.Knob
	for _, w := range workloads {
		if w.Class == node.BE && w.Cgroup != "" {
			all = append(all, node.Knob{Cgroup: w.Cgroup, File: node.FileRun})
		}
	}
	return all
}

// shownRun returns the value for a snapshot: as readRun, but Ended if no
// process is left.
func (h *Host) shownRun(p string) node.Value {
	v, err := h.readRun(p)
	if err != nil {
		return nil
	}
	if v == node.Running {
		if lives, err := h.tree.Populated(p); err == nil && !lives {
			return node.Ended
		}
	}
	return v
}

// showsRuns reports whether snapshots show how best-effort workloads run.
func (s *sight) showsRuns() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

// follow makes the cache read a knob in every look until its cgroup has ended,
// and reports whether it was killed before.
func (s *sight) follow(k node.Knob, v node.Run) (killed bool) {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	killed = s.ending[k] == node.Ended
	if s.ending == nil {
		s.ending = map[node.Knob]node.Run{}
	}
	s.ending[k] = v
	return killed
}

// dropEnding drops the knobs of ending cgroups; s.mu is held.
func (s *sight) dropEnding() {
	for k := range s.ending {
		switch v, inSight := s.known[k]; {
		case !inSight || v == node.Ended:
			delete(s.ending, k)
		default:
			delete(s.known, k)
		}
	}
}
