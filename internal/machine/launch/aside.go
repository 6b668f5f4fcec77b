package launch

import (
	"fmt"
	"os"
	"slices"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
)

// A command may itself call tenon run. That launcher then has the class of the
// command, and if it is best-effort, it may wait for seconds for its next CPU
// time. With the lock it would hold up every other launcher. So it leaves the
// best-effort cgroup, and the lowest priority of a thread, while it waits for the
// lock and has it.

// stepAside takes this process out of best-effort work, as far as it is in it and
// has the right to leave it. The result puts it back.
func (r *run) stepAside() (back func()) {
	calm := raise(r.threads)
	home, err := r.bestEffortHome()
	if err != nil || home == nil {
		return calm
	}
	pid := os.Getpid()
	if !attachAll(r.asideOf(pid), pid) {
		return calm
	}
	return func() {
		calm()
		// The cgroup may be gone, if every other process in it has ended. Then the
		// launcher stays where it is: it hardly needs CPU time.
		slices.Reverse(home) // the CPU last
		attachAll(home, pid)
	}
}

// bestEffortHome returns the cgroup directories of this process, if it gets CPU
// time only where no other work wants it, and otherwise nil.
func (r *run) bestEffortHome() ([]string, error) {
	dirs, own, err := r.dirsOf(os.Getpid())
	if err != nil || !r.isBestEffort(own) {
		return nil, err
	}
	return dirs, nil
}

// isBestEffort reports whether a cgroup, or one above it, is idle or has the
// least weight.
func (r *run) isBestEffort(group node.CgroupPath) bool {
	for p := group; p != ""; p = p.Parent() {
		w, err := r.Tree.ReadCPUWeight(string(p))
		if err == nil && (w.Idle || w.Weight.V2() <= 1) {
			return true
		}
	}
	return false
}

// asideOf returns the cgroup directories of the nearest ancestor of a process that
// is not in best-effort work. Usually this is the tenon run that started the
// command, or its shell. It returns nil if there is none.
func (r *run) asideOf(pid int) []string {
	for {
		s, err := r.FS.PIDStat(pid)
		if err != nil || s.PPID == 0 {
			return nil
		}
		pid = s.PPID
		if dirs, group, err := r.dirsOf(pid); err == nil && !r.isBestEffort(group) {
			return dirs
		}
	}
}

// attachAll moves a process into cgroup directories. It reports whether it could
// move it into any.
func attachAll(dirs []string, pid int) (moved bool) {
	for _, dir := range dirs {
		if os.WriteFile(dir+"/cgroup.procs", fmt.Appendln(nil, pid), 0) == nil {
			moved = true
		}
	}
	return moved
}

func (r *run) threads() ([]int, error) { return r.FS.Threads(os.Getpid()) }

// raise gives the threads of this process the default policy and nice value,
// where they have a lower priority. The result gives them back what they had.
// Without the right to do so, it changes nothing.
func raise(threads func() ([]int, error)) (back func()) {
	change := func(change func(task.SchedAttr) (task.SchedAttr, bool)) {
		tids, err := threads()
		if err != nil {
			return
		}
		for _, tid := range tids {
			a, err := task.Attr(tid)
			if err != nil {
				continue
			}
			if to, wanted := change(a); wanted {
				// With the policy Idle, the kernel keeps the present nice value.
				_ = task.SetAttr(tid, task.SchedAttr{Policy: task.Normal, Nice: to.Nice})
				_ = task.SetAttr(tid, to)
			}
		}
	}
	var had *task.SchedAttr
	change(func(a task.SchedAttr) (task.SchedAttr, bool) {
		if a.Policy != task.Idle && (a.Policy != task.Normal || a.Nice <= 0) {
			return a, false
		}
		had = &a
		return task.SchedAttr{Policy: task.Normal}, true
	})
	if had == nil {
		return func() {}
	}
	return func() {
		// New threads have what the thread that made them had, so all get it.
		change(func(task.SchedAttr) (task.SchedAttr, bool) { return *had, true })
	}
}
