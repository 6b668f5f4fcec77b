package host

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/model/node"
)

// MakeGroup creates a cgroup and its missing ancestors. It journals each cgroup
// before it creates the cgroup, and on v2 each controller that it enables in an
// existing ancestor. It does not change an existing cgroup otherwise.
func (h *Host) MakeGroup(p node.CgroupPath) error {
	if err := h.needTree(); err != nil {
		return fmt.Errorf("make cgroup %s: %w", p, err)
	}
	var missing []node.CgroupPath
	for q := p; q != "" && !h.tree.Exists(string(q)); q = q.Parent() {
		missing = append(missing, q)
	}
	for _, q := range slices.Backward(missing) {
		if err := h.journal.RecordGroup(q); err != nil {
			return err
		}
	}
	err := enableControllers(h, p)
	if err == nil {
		err = h.tree.Make(string(p))
	}
	if err == nil {
		for _, q := range missing {
			h.changes.NoteMade(q)
		}
	}
	if err != nil {
		for _, q := range missing {
			if !h.tree.Exists(string(q)) {
				err = errors.Join(err, h.journal.Removed(q))
			}
		}
	}
	return err
}

// RemoveGroup removes one cgroup and its journal entries. It waits up to 2 s
// for processes that are ending. It returns EBUSY if the cgroup still has
// processes or has child cgroups, and nil if the cgroup does not exist.
func (h *Host) RemoveGroup(p node.CgroupPath) error {
	if err := h.needTree(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", p, err)
	}
	// This check must come before Remove. Otherwise, on v1, Remove would remove the
	// cgroup from those hierarchies in which it has no children.
	children, err := h.tree.Children(string(p))
	if err != nil && !errors.Is(err, cgroup.ErrGone) {
		return fmt.Errorf("remove cgroup %s: %w", p, err)
	}
	if len(children) > 0 {
		return fmt.Errorf("remove cgroup %s: it holds %d groups: %w", p, len(children), syscall.EBUSY)
	}
	if err := h.tree.Remove(string(p)); err != nil {
		return err
	}
	return h.journal.Removed(p)
}

// Attach moves a process with all its threads into a cgroup.
func (h *Host) Attach(p node.CgroupPath, pid int) error {
	if err := h.needTree(); err != nil {
		return fmt.Errorf("attach %d to cgroup %s: %w", pid, p, err)
	}
	return h.tree.Attach(string(p), pid)
}

// Spawned journals a process that Tenon has started. If Tenon dies before the
// process ends, a restore ends the process and all its descendants.
func (h *Host) Spawned(pid int) error {
	p, err := change.Identify(h.fs, pid)
	if err != nil {
		return fmt.Errorf("journal process %d: %w", pid, err)
	}
	return h.journal.Spawned(p)
}

// Reaped removes an ended process from the journal.
func (h *Host) Reaped(pid int) error {
	s, err := h.journal.State()
	if err != nil {
		return err
	}
	var errs []error
	for p := range s.Processes {
		if p.PID == pid {
			errs = append(errs, h.journal.Reaped(p))
		}
	}
	return errors.Join(errs...)
}
