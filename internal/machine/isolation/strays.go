package isolation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// convertStray gives a stray (see docs/glossary.md) its cgroup's scheduling policy.
func (i *Isolation) convertStray(e scx.Stray) {
	i.mu.Lock()
	i.status.Strays++
	_, demoted := i.demoted[e.TID]
	i.mu.Unlock()
	if demoted || task.Policy(e.Policy).RealTime() {
		return
	}
	switch belongs, known := i.belongs(e.TID, node.FilePolicy); {
	case !known: // the cgroup is not visible to this process: check all threads
		i.mu.Lock()
		i.stale = true
		i.mu.Unlock()
		return
	case !belongs:
		return
	}
	n, err := i.policies.Extend(task.Fixed(e.TID), nil)
	i.mu.Lock()
	i.status.Converted += uint64(n)
	i.mu.Unlock()
	if err != nil {
		i.wake(err.Error())
	}
}

// belongs reports whether a thread is in a cgroup whose threads must have the attribute f
// (policy or cookie). known is false if no cgroup of the thread is one that Tenon knows.
func (i *Isolation) belongs(tid int, f node.File) (belongs, known bool) {
	entries, err := i.fs.Cgroup(tid)
	if err != nil {
		return false, true // the thread has ended
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, e := range entries {
		v2 := len(e.Controllers) == 0
		if v2 != (i.tree.VersionOf("cpu") == 2) || !v2 && !slices.Contains(e.Controllers, "cpu") {
			continue
		}
		for p := node.CgroupPath(strings.Trim(e.Path, "/")); p != ""; p = p.Parent() {
			if class, is := i.classes[p]; is && class != node.BE || i.exempt.Has(p) {
				return false, true
			}
			if i.converted[node.Knob{Cgroup: p, File: f}] {
				return true, true
			}
		}
	}
	return false, false
}

// demote moves a thread that has waited too long from the scheduler to the fair
// class for some seconds. Otherwise the kernel would eject the scheduler.
func (i *Isolation) demote(e scx.LongWait) {
	i.mu.Lock()
	_, again := i.demoted[e.TID]
	i.demoted[e.TID] = i.now().Add(demotedFor)
	if !again {
		i.status.Demotions++
	}
	i.mu.Unlock()
	if _, err := i.policies.Shorten(task.Fixed(e.TID)); err != nil {
		i.wake(err.Error())
	}
}

// endDemotions moves a demoted thread back to the scheduler when its time is
// over and a CPU is free for it.
func (i *Isolation) endDemotions(at time.Time) {
	i.mu.Lock()
	var over []int
	for tid, until := range i.demoted {
		if !at.Before(until) {
			over = append(over, tid)
		}
	}
	i.mu.Unlock()
	// Without a free CPU, the thread would wait again.
	over = slices.DeleteFunc(over, func(tid int) bool { return !i.scheduler.HasRoom(tid) })
	i.mu.Lock()
	for _, tid := range over {
		delete(i.demoted, tid)
	}
	i.mu.Unlock()
	for _, tid := range over {
		if belongs, _ := i.belongs(tid, node.FilePolicy); belongs {
			_, _ = i.policies.Extend(task.Fixed(tid), nil) // after an error, the next check finds the thread
		}
	}
}

// checkedWork is the state of a workload when guardOthers last checked its
// threads.
type checkedWork struct {
	class  node.Class
	used   node.Maybe[time.Duration] // its CPU time; absent: not counted
	failed string                    // why its threads could not be changed; empty: they could
}

type checkedWorks map[node.CgroupPath]checkedWork

// guardOthers removes best-effort attributes from threads of other classes,
// because threads with them run only after all others. A thread has them if its
// workload has changed its class, or if a best-effort thread has started it.
// guardOthers works while a mechanism uses such attributes, and for some time
// after. It checks new workloads at once, and the others in turn if they have
// run. After an error it checks the workload again in the next tick, because a
// thread that keeps these attributes may never run.
func (i *Isolation) guardOthers(s *node.Snapshot) {
	i.mu.Lock()
	if len(i.converted) == 0 && len(i.recheck) == 0 || !i.resident {
		i.checked = nil
		i.mu.Unlock()
		return
	}
	given := map[node.File]bool{}
	for k := range i.converted {
		given[k.File] = true
	}
	late := maps.Clone(i.recheck)
	own, known := i.classes, i.checked
	i.checked = make(checkedWorks, len(s.Workloads))
	due := map[node.CgroupPath]bool{}
	for n := range i.checks.Due(s.At, len(s.Workloads), reread.Unchanged) {
		p := s.Workloads[n].Cgroup
		used, counted := i.used[p]
		if ran := !counted || known[p].used != node.Some(used); ran || len(late) > 0 {
			due[p] = true
		}
	}
	for n := range s.Workloads {
		w := &s.Workloads[n]
		last := known[w.Cgroup]
		if last.class != w.Class || last.failed != "" {
			due[w.Cgroup] = true
		}
		if due[w.Cgroup] {
			last = checkedWork{class: w.Class, failed: last.failed}
			if used, counted := i.used[w.Cgroup]; counted {
				last.used = node.Some(used)
			}
		}
		i.checked[w.Cgroup] = last
	}
	i.mu.Unlock()
	for p := range due {
		// Remove only attributes that Tenon itself sets on this node.
		ours := func(f node.File) bool {
			_, left := late[f]
			return given[f] && own[p] != node.BE || !given[f] && left
		}
		list := func() ([]int, error) {
			return subtree.ThreadsBut(i.tree, p, func(q node.CgroupPath) bool { return q != p && own[q] == node.BE })
		}
		n, err := strip(i.attributes, list, ours)
		if n > 0 {
			i.wake(count(n, "thread", "threads") + " of " + string(p) + " had attributes of best-effort threads")
		}
		i.mu.Lock()
		news := i.checked.note(p, err)
		i.mu.Unlock()
		if news != "" {
			i.wake(news)
		}
	}
}

// note stores why the threads of a workload could not be changed. If the reason is
// new, note returns a text for the loop. A cgroup that is gone has no threads.
func (all checkedWorks) note(p node.CgroupPath, err error) (news string) {
	c, still := all[p]
	if !still {
		return ""
	}
	was := c.failed
	c.failed = ""
	if err != nil && !errors.Is(err, cgroup.ErrGone) {
		c.failed = strings.Join(strings.Fields(err.Error()), " ")
	}
	all[p] = c
	if c.failed == "" || c.failed == was {
		return ""
	}
	return "threads of " + string(p) + " may keep attributes of best-effort threads: " + c.failed
}

// count returns a number with its noun, in the singular or the plural.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
