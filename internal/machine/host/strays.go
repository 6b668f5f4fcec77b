package host

import (
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
)

// convertStray gives a thread the policy that its group has.
func (h *Host) convertStray(e scx.Stray) {
	i := &h.isolation
	i.mu.Lock()
	i.status.Strays++
	_, spilled := i.spills[e.TID]
	i.mu.Unlock()
	if spilled || task.Policy(e.Policy).RealTime() {
		return
	}
	switch belongs, known := h.belongs(e.TID, node.FilePolicy); {
	case !known: // its group may have a name that we do not see: look at all
		i.mu.Lock()
		i.stale = true
		i.mu.Unlock()
		return
	case !belongs:
		return
	}
	n, err := h.isolation.ext.extend(task.Fixed(e.TID), nil)
	i.mu.Lock()
	i.status.Converted += uint64(n)
	i.mu.Unlock()
	if err != nil {
		h.wake(err.Error())
	}
}

// belongs reports whether a thread is in a group whose threads were given what a
// file is about, the policy or the cookie, and whether that can be told.
func (h *Host) belongs(tid int, f node.File) (belongs, known bool) {
	entries, err := h.fs.Cgroup(tid)
	if err != nil {
		return false, true // it has ended
	}
	i := &h.isolation
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, e := range entries {
		v2 := len(e.Controllers) == 0
		if v2 != (h.tree.VersionOf("cpu") == 2) || !v2 && !slices.Contains(e.Controllers, "cpu") {
			continue
		}
		for p := node.CgroupPath(strings.Trim(e.Path, "/")); p != ""; p = p.Parent() {
			if class, is := i.own[p]; is && class != node.BE || i.spares(p) {
				return false, true
			}
			if i.given[node.Knob{Cgroup: p, File: f}] {
				return true, true
			}
		}
	}
	return false, false
}

// spill gives a thread that waits for too long to the kernel's own scheduler,
// where its group is idle, for some seconds: else the kernel would in the end
// throw the scheduler out.
func (h *Host) spill(e scx.LongWait) {
	i := &h.isolation
	i.mu.Lock()
	_, again := i.spills[e.TID]
	i.spills[e.TID] = h.now().Add(spillFor)
	if !again {
		i.status.Spills++
	}
	i.mu.Unlock()
	if _, err := h.isolation.ext.shorten(task.Fixed(e.TID)); err != nil {
		h.wake(err.Error())
	}
}

// endSpills takes threads back whose time is over, when there is a CPU for them.
func (h *Host) endSpills(at time.Time) {
	i := &h.isolation
	i.mu.Lock()
	s := i.scheduler.loaded
	var over []int
	for tid, until := range i.spills {
		// Without room it would wait on, where it was.
		if at.Before(until) || s != nil && !s.HasRoom(tid) {
			continue
		}
		over = append(over, tid)
		delete(i.spills, tid)
	}
	i.mu.Unlock()
	for _, tid := range over {
		if belongs, _ := h.belongs(tid, node.FilePolicy); belongs {
			_, _ = h.isolation.ext.extend(task.Fixed(tid), nil) // if not, the next look at its group finds it
		}
	}
}

// guardOthers takes from threads of work of other classes what only best-effort
// ones should have: below all others, such work would not run in time. Its
// class may be new, or a best-effort thread may have started it. New work is
// looked at in the next snapshot, all in turn, as long as a rung is in use that
// is about threads; and for a while after, when nobody should have it.
func (h *Host) guardOthers(s *node.Snapshot) {
	i := &h.isolation
	i.mu.Lock()
	if len(i.given) == 0 && len(i.late) == 0 || h.sight == nil {
		i.safe = nil
		i.mu.Unlock()
		return
	}
	given := map[node.File]bool{}
	for k := range i.given {
		given[k.File] = true
	}
	late := maps.Clone(i.late)
	own, known := i.own, i.safe
	theirs := i.scheduler.loaded == nil && i.foreign.name != "" // the policy is
	i.safe = make(map[node.CgroupPath]node.Class, len(s.Workloads))
	due := map[node.CgroupPath]bool{}
	for n := range i.rounds.due(s.At, len(s.Workloads), glanceWithin) {
		due[s.Workloads[n].Cgroup] = true
	}
	for _, w := range s.Workloads {
		if i.safe[w.Cgroup] = w.Class; known[w.Cgroup] != w.Class {
			due[w.Cgroup] = true
		}
	}
	i.mu.Unlock()
	for p := range due {
		// What we have given nobody is nothing of ours.
		ours := func(f node.File) bool {
			_, left := late[f]
			return given[f] && own[p] != node.BE || !given[f] && left
		}
		list := func() ([]int, error) {
			return h.threadsBut(p, func(q node.CgroupPath) bool { return q != p && own[q] == node.BE })
		}
		n := 0
		if ours(node.FilePolicy) && !theirs {
			n, _ = i.ext.shorten(list) // a group that is gone needs none
		}
		if ours(node.FileSlice) {
			restored, _ := unlengthen(list)
			n += restored
		}
		if ours(node.FileCookie) {
			n += i.clearOurs(list)
		}
		if n > 0 {
			h.wake(count(n, "thread", "threads") + " of " + string(p) + " had what only best-effort ones should have")
		}
	}
}

// clearOurs takes our cookies from threads, and returns from how many.
func (i *isolation) clearOurs(list task.List) int {
	i.mu.Lock()
	ours := maps.Clone(i.bore)
	if i.cookies != nil {
		ours[i.cookies.ID()] = true
	}
	i.mu.Unlock()
	if len(ours) == 0 {
		return 0
	}
	tids, err := list()
	if err != nil {
		return 0
	}
	tids = slices.DeleteFunc(tids, func(tid int) bool {
		has, err := i.core.cookieOf(tid)
		return err != nil || !ours[has]
	})
	if len(tids) == 0 {
		return 0
	}
	n, _ := i.core.clear(task.Fixed(tids...))
	return n
}
