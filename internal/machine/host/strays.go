package host

import (
	"maps"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/kernel/scx"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// convertStray gives a thread the policy of its cgroup.
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
	case !known: // its cgroup may be invisible from here: check all
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

// belongs reports whether a thread is in a cgroup with the thread attribute of
// a file, the policy or the cookie, and whether that is known.
func (h *Host) belongs(tid int, f node.File) (belongs, known bool) {
	entries, err := h.fs.Cgroup(tid)
	if err != nil {
		return false, true // the thread has ended
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

// spill demotes a thread of an idle cgroup that has waited too long to the fair
// class for some seconds: otherwise the kernel would eject the scheduler.
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

// endSpills ends the demotions whose time is over, when a CPU is free for the
// thread.
func (h *Host) endSpills(at time.Time) {
	i := &h.isolation
	i.mu.Lock()
	s := i.scheduler.loaded
	var over []int
	for tid, until := range i.spills {
		// Without a free CPU the thread would go on waiting.
		if at.Before(until) || s != nil && !s.HasRoom(tid) {
			continue
		}
		over = append(over, tid)
		delete(i.spills, tid)
	}
	i.mu.Unlock()
	for _, tid := range over {
		if belongs, _ := h.belongs(tid, node.FilePolicy); belongs {
			_, _ = h.isolation.ext.extend(task.Fixed(tid), nil) // after an error the next check of its cgroup finds it
		}
	}
}

// guardOthers removes best-effort attributes from threads of other classes,
// which with them would run only after all other threads. The class of the work
// may be new, or a best-effort thread may have started it. It checks new work
// at once and all work in turn, while a mechanism with thread attributes is in
// use and for a while after.
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
	theirs := i.scheduler.loaded == nil && i.foreign.name != "" // the policy belongs to another component's scheduler
	i.safe = make(map[node.CgroupPath]node.Class, len(s.Workloads))
	due := map[node.CgroupPath]bool{}
	for n := range i.rounds.Due(s.At, len(s.Workloads), reread.Unchanged) {
		due[s.Workloads[n].Cgroup] = true
	}
	for _, w := range s.Workloads {
		if i.safe[w.Cgroup] = w.Class; known[w.Cgroup] != w.Class {
			due[w.Cgroup] = true
		}
	}
	i.mu.Unlock()
	for p := range due {
		// Undo only attributes that Tenon itself sets on this node.
		ours := func(f node.File) bool {
			_, left := late[f]
			return given[f] && own[p] != node.BE || !given[f] && left
		}
		list := func() ([]int, error) {
			return subtree.ThreadsBut(h.tree, p, func(q node.CgroupPath) bool { return q != p && own[q] == node.BE })
		}
		n := 0
		if ours(node.FilePolicy) && !theirs {
			n, _ = i.ext.shorten(list) // without an error for a cgroup that is gone
		}
		if ours(node.FileSlice) {
			restored, _ := unlengthen(list)
			n += restored
		}
		if ours(node.FileCookie) {
			n += i.clearOurs(list)
		}
		if n > 0 {
			h.wake(count(n, "thread", "threads") + " of " + string(p) + " had attributes of best-effort threads")
		}
	}
}

// clearOurs clears our cookies of threads, and returns of how many.
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
