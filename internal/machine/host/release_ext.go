package host

import (
	"errors"
	"fmt"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// ReleaseExt moves the threads in and below a cgroup, and no others, to the
// fair class, whichever scheduler they are in, and returns their number. The
// kernel then applies cpu.max to them, which it does not for threads of
// sched_ext. The journal does not change: the owner of the cgroup's FilePolicy
// finds these threads as strays. A cgroup that is gone has no threads.
func (h *Host) ReleaseExt(p node.CgroupPath) (int, error) {
	n, err := h.isolation.ext.shorten(func() ([]int, error) { return subtree.Threads(h.tree, p) })
	if err == nil || errors.Is(err, cgroup.ErrGone) {
		return n, nil
	}
	return n, fmt.Errorf("give the threads of %s back to the kernel's own scheduler: %w", p, err)
}

// Tend serves the loaded scheduler between two snapshots: it sends the
// heartbeat, and ends demotions in time. Without a scheduler it does nothing.
func (h *Host) Tend() error {
	s := h.scheduling()
	if s == nil {
		return nil
	}
	h.endSpills(h.now())
	if err := s.Beat(); !errors.Is(err, scx.ErrClosed) { // follow reports its end
		return err
	}
	return nil
}

// Guard does the writes about threads that snapshots must not do: it removes
// best-effort attributes from threads of other work, and sends the scheduler's
// heartbeat. The loop calls it after the steps of each tick.
func (h *Host) Guard() error {
	if h.tree == nil {
		return nil
	}
	s := node.Snapshot{At: h.now(), Workloads: h.managed()}
	h.guardOthers(&s)
	h.leaveLate(s.At)
	return h.Tend()
}

// Unload takes down the BPF scheduler if this host has loaded one or is loading
// one, and reports whether it had. It is for a loop that hangs and cannot give
// the scheduler orders any more; the next snapshot shows that the scheduler is
// gone.
func (h *Host) Unload() (bool, error) {
	s, loading := h.isolation.unwant()
	if s == nil {
		return loading, nil
	}
	return true, h.unload(s)
}

// scheduling returns the scheduler that this host has loaded; nil: none.
func (h *Host) scheduling() extScheduler {
	h.isolation.mu.Lock()
	defer h.isolation.mu.Unlock()
	return h.isolation.scheduler.loaded
}

// RereadThreads makes the next snapshot read the threads of all cgroups with
// thread attributes: another process may have removed some.
func (h *Host) RereadThreads() { h.isolation.expire() }
