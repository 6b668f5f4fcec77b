package isolation

import (
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// ReleaseExt moves the threads in and below a cgroup from any sched_ext
// scheduler to the fair class, and returns how many it moved. This is needed
// because the kernel applies cpu.max only to threads of the fair class. The
// journal does not change. The process that owns the cgroup's FilePolicy later
// finds these threads as strays. A cgroup that does not exist has no threads.
func (i *Isolation) ReleaseExt(p node.CgroupPath) (int, error) {
	n, err := i.policies.Shorten(func() ([]int, error) { return subtree.Threads(i.tree, p) })
	if err == nil || errors.Is(err, cgroup.ErrGone) {
		return n, nil
	}
	return n, fmt.Errorf("give the threads of %s back to the kernel's own scheduler: %w", p, err)
}

// Unload unloads the BPF scheduler: see bescheduler.Scheduler.
func (i *Isolation) Unload() (bool, error) { return i.scheduler.Unload() }

// Tend serves the loaded scheduler between two snapshots: it sends the
// heartbeat, and ends demotions whose time is over. If no scheduler is loaded,
// it does nothing.
func (i *Isolation) Tend() error { return i.tend(i.now()) }

func (i *Isolation) tend(at time.Time) error {
	if !i.scheduler.Loaded() {
		return nil
	}
	i.endDemotions(at)
	return i.scheduler.Beat()
}

// Guard removes best-effort attributes from threads of other classes, and sends
// the heartbeat to the scheduler. A snapshot must not do this, because it
// writes nothing. The loop calls Guard after the steps of each tick.
func (i *Isolation) Guard(at time.Time, workloads []node.Workload) error {
	if i.tree == nil {
		return nil
	}
	s := node.Snapshot{At: at, Workloads: workloads}
	i.guardOthers(&s)
	i.recheckReleased(s.At)
	return i.tend(at)
}
