package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/vendormark"
	"tenon.sh/tenon/internal/model/node"
)

// runs is the part of a Host that freezes, thaws and ends the processes of cgroups.
type runs struct {
	tree    *cgroup.Tree
	journal *journal.Journal
	fs      proc.FS
	changes *change.Knobs
	marks   *vendormark.Marks
	exempt  *isolation.Exempt
	cache   *knobCache // nil unless resident
	now     func() time.Time
	spare   func() []int // lists processes that must not be stopped, as Options.Spare
}

// read returns Running or Frozen. On a node without freezer, it returns Running.
func (x *runs) read(p string) (node.Run, error) {
	frozen, err := x.tree.IsFrozen(p)
	switch {
	case frozen:
		return node.Frozen, nil
	case err == nil:
		return node.Running, nil
	case (errors.Is(err, cgroup.ErrUnsupported) || errors.Is(err, cgroup.ErrGone)) && x.tree.Exists(p):
		return node.Running, nil
	}
	return "", err
}

// write freezes or thaws a cgroup.
func (x *runs) write(p node.CgroupPath, v node.Run) error {
	if v == node.Frozen {
		if err := x.mayStop(p); err != nil {
			return fmt.Errorf("freeze %s: %w", p, err)
		}
		if err := x.exempt.Add(p, time.Time{}, ""); err != nil {
			return fmt.Errorf("freeze %s: %w", p, err)
		}
	}
	err := x.tree.Freeze(string(p), v == node.Frozen)
	if v != node.Frozen || err != nil {
		x.exempt.End(p)
	}
	return err
}

// end asks all processes in and below a cgroup to end, or kills them. The journal
// does not record this, because nothing can undo it. If Tenon has frozen the
// cgroup, end first thaws it, and removes the freeze from the journal.
func (x *runs) end(k node.Knob, v node.Run) error {
	if err := x.mayStop(k.Cgroup); err != nil {
		return err
	}
	if err := x.prepare(k); err != nil {
		return err
	}
	if v == node.Ended {
		x.exempt.Killed(k.Cgroup)
		_ = x.exempt.ClearIdle(k.Cgroup)
	}
	killed := x.cache.follow(k, v)
	if v == node.AskedToEnd {
		_, err := x.tree.Signal(string(k.Cgroup), syscall.SIGTERM)
		return err
	}
	if err := x.kill(k); err != nil {
		return err
	}
	if lives, err := x.tree.IsPopulated(string(k.Cgroup)); err == nil && lives && killed {
		return fmt.Errorf("%s has processes that do not die of SIGKILL: they are in uninterruptible sleep, or fork faster than they can be ended", k.Cgroup)
	}
	return nil
}

// prepare makes a cgroup ready to end, whichever program then ends its processes. A
// process must run in order to exit. So prepare thaws the cgroup if Tenon froze it,
// removes the freeze from the journal, and exempts the cgroup from isolation. If
// the exemption fails, the cgroup only ends later, so prepare ignores the error.
func (x *runs) prepare(k node.Knob) error {
	if err := x.changes.Release(k); err != nil {
		return err
	}
	_ = errors.Join(x.exempt.Add(k.Cgroup, x.now().Add(isolation.MaxExempt), node.AskedToEnd), x.marks.Unmark(k.Cgroup))
	return nil
}

// thaw thaws everything that Tenon froze. It is called before the agent stops.
func (x *runs) thaw() error {
	touches, err := x.changes.ReleasableKnobs()
	if err != nil {
		return err
	}
	var errs []error
	for k := range touches {
		if k.File == node.FileRun {
			errs = append(errs, x.changes.Release(k))
		}
	}
	return errors.Join(errs...)
}

// kill kills all processes in and below a cgroup. It may have to freeze the
// cgroup for a moment. The freeze is in the journal until the cgroup is thawed.
func (x *runs) kill(k node.Knob) error {
	p := string(k.Cgroup)
	before, err := x.changes.Read(k)
	if err != nil {
		return err
	}
	if before == node.Frozen || !x.tree.KillFreezes(p) { // another component froze it, or the kill needs no freeze
		return x.tree.Kill(p)
	}
	inode, err := x.changes.Inode(k)
	if err != nil {
		return err
	}
	// The kill must work even if the journal cannot be written, for example
	// because its file system is full.
	err = errors.Join(x.journal.Intend(k, inode, before, node.Frozen), x.tree.Kill(p))
	if now, readErr := x.changes.Read(k); readErr == nil && now == node.Frozen {
		return err // the thaw failed; a restore tries it again
	}
	return errors.Join(err, x.journal.Forget(k))
}

// mayStop returns an error if the cgroup contains a process that must not stop:
// PID 1, this process, another live Tenon process, or one in the list spare.
func (x *runs) mayStop(p node.CgroupPath) error {
	if p == "" {
		return isolation.ErrOwn
	}
	pids, missed := x.tree.ProcsBelow(string(p))
	if missed != nil && !partial.Is(missed) {
		return missed
	}
	state, err := x.journal.State()
	if err != nil {
		return err
	}
	own := []int{1, os.Getpid()}
	for _, s := range change.Sessions(state) {
		if change.Alive(x.fs, journal.Process{PID: s.PID, Start: s.Start}) {
			own = append(own, s.PID)
		}
	}
	if x.spare != nil {
		own = append(own, x.spare()...)
	}
	for _, pid := range own {
		inside := slices.Contains(pids, pid)
		if missed != nil && !inside { // it may be in a cgroup that cannot be read
			if inside, err = isolation.IsInside(x.fs, pid, p); err != nil && !errors.Is(err, proc.ErrGone) {
				return err
			}
		}
		if inside {
			return fmt.Errorf("process %d: %w", pid, isolation.ErrOwn)
		}
	}
	return nil
}

// runKnobs lists the knobs with which Tenon freezes and ends best-effort work:
// the FileRun of each best-effort workload.
func runKnobs(workloads []node.Workload) []node.Knob {
	var all []node.Knob
	for _, w := range workloads {
		if w.Class == node.BE && w.Cgroup != "" {
			all = append(all, node.Knob{Cgroup: w.Cgroup, File: node.FileRun})
		}
	}
	return all
}

// shownValue returns the run state that a snapshot shows: Ended if no process
// is left, and otherwise the state that the kernel shows.
func (x *runs) shownValue(p string) node.Value {
	v, err := x.read(p)
	if err != nil {
		return nil
	}
	if v == node.Running {
		if lives, err := x.tree.IsPopulated(p); err == nil && !lives {
			return node.Ended
		}
	}
	return v
}
