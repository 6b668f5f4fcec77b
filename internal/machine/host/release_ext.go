package host

import (
	"errors"
	"fmt"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/model/node"
)

// ReleaseExt gives the threads in and below a cgroup, and no others, back to the
// kernel's own scheduler, whoever loaded the one they are in, and returns how
// many there were. From then on the kernel applies cpu.max to them, which it
// does not to threads of sched_ext. The journal is not told: whoever keeps
// FilePolicy of the group finds them astray. A group that is gone has none.
func (h *Host) ReleaseExt(p node.CgroupPath) (int, error) {
	n, err := h.isolation.ext.shorten(func() ([]int, error) { return h.everyThread(p) })
	if err == nil || errors.Is(err, cgroup.ErrGone) {
		return n, nil
	}
	return n, fmt.Errorf("give the threads of %s back to the kernel's own scheduler: %w", p, err)
}

// Tend does what the loaded scheduler needs between two snapshots, however far
// these are apart: it hears that this process lives, and threads that were
// spilled come back in time. Without a scheduler it does nothing.
func (h *Host) Tend() error {
	s := h.scheduling()
	if s == nil {
		return nil
	}
	h.endSpills(h.now())
	if err := s.Beat(); !errors.Is(err, scx.ErrClosed) { // of its end follow tells
		return err
	}
	return nil
}

// Guard does what must be done about threads between two snapshots, which write
// nothing: it takes from threads of other work what only best-effort ones should
// have, and lets the scheduler know that this process lives. The loop calls it
// after the steps of each tick.
func (h *Host) Guard() error {
	if h.tree == nil {
		return nil
	}
	s := node.Snapshot{At: h.now(), Workloads: h.managed()}
	h.guardOthers(&s)
	h.leaveLate(s.At)
	return h.Tend()
}

// Unload takes the scheduler of best-effort threads down, if this host has
// loaded one or is about to, and says whether it had. It is for when nobody can
// tell any more what the scheduler should do: the next snapshot shows that it
// is gone.
func (h *Host) Unload() (bool, error) {
	s, loading := h.isolation.unwant()
	if s == nil {
		return loading, nil
	}
	return true, h.unload(s)
}

// scheduling is the scheduler that this host has loaded; nil: none.
func (h *Host) scheduling() extScheduler {
	h.isolation.mu.Lock()
	defer h.isolation.mu.Unlock()
	return h.isolation.scheduler.loaded
}

// RereadThreads makes the next snapshot look at the threads of all groups whose
// threads were given something: somebody else may have taken it from them.
func (h *Host) RereadThreads() { h.isolation.expire() }
