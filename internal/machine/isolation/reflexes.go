package isolation

import (
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// ReleaseExt moves the threads in and below a cgroup, and no others, to the
// fair class, whichever scheduler they are in, and returns their number. The
// kernel then applies cpu.max to them, which it does not for threads of
// sched_ext. The journal does not change: the owner of the cgroup's FilePolicy
// finds these threads as strays. A cgroup that is gone has no threads.
func (i *Isolation) ReleaseExt(p node.CgroupPath) (int, error) {
	n, err := i.policies.Shorten(func() ([]int, error) { return subtree.Threads(i.tree, p) })
	if err == nil || errors.Is(err, cgroup.ErrGone) {
		return n, nil
	}
	return n, fmt.Errorf("give the threads of %s back to the kernel's own scheduler: %w", p, err)
}

// Unload takes down the BPF scheduler: see bescheduler.Scheduler.
func (i *Isolation) Unload() (bool, error) { return i.scheduler.Unload() }

// Tend serves the loaded scheduler between two snapshots: it sends the
// heartbeat, and ends demotions in time. Without a scheduler it does nothing.
func (i *Isolation) Tend() error { return i.tend(i.now()) }

func (i *Isolation) tend(at time.Time) error {
	if !i.scheduler.Loaded() {
		return nil
	}
	i.endDemotions(at)
	return i.scheduler.Beat()
}

// Guard does the writes about threads that snapshots must not do: it removes
// best-effort attributes from threads of other work than best-effort, and sends
// the scheduler's heartbeat. The loop calls it after the steps of each tick.
func (i *Isolation) Guard(at time.Time, workloads []node.Workload) error {
	if i.tree == nil {
		return nil
	}
	s := node.Snapshot{At: at, Workloads: workloads}
	i.guardOthers(&s)
	i.recheckReleased(s.At)
	return i.tend(at)
}
