package host

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// mayHave reports whether threads may still have the attribute of a journaled
// knob: also during its release, and after a release that failed.
func mayHave(t journal.Touch) bool {
	return t.Written != node.Value(node.ThreadsNormal) || t.Pending != nil && t.Pending != node.Value(node.ThreadsNormal)
}

// lastLeave cleans up after the release of the last journaled knob of a thread
// attribute, in any process: it removes the attribute from threads that left
// their cgroups. For other knobs it does nothing.
func (h *Host) lastLeave(k node.Knob) error {
	if !k.File.OfThreads() {
		return nil
	}
	s, err := h.journal.State()
	if err != nil {
		return err
	}
	for other := range s.Touches {
		if other.File == k.File && other != k {
			return nil
		}
	}
	if err := h.leavers(k.File); err != nil {
		return err
	}
	i := &h.isolation
	i.mu.Lock()
	defer i.mu.Unlock()
	if h.sight != nil {
		i.late[k.File] = h.now().Add(reread.Unchanged)
	} else if k.File == node.FileCookie {
		clear(i.bore)
	}
	return nil
}

// leaveLate repeats that once, a while later: a thread that was created while
// lastLeave listed all threads has a copy of its parent's attributes.
func (h *Host) leaveLate(at time.Time) {
	i := &h.isolation
	i.mu.Lock()
	due := maps.Clone(i.late)
	for k := range i.given {
		delete(i.late, k.File) // in use again
	}
	maps.DeleteFunc(due, func(f node.File, t time.Time) bool {
		_, left := i.late[f]
		return !left || at.Before(t)
	})
	i.mu.Unlock()
	for f := range due {
		if err := h.leavers(f); err != nil {
			h.wake(err.Error())
		}
		i.mu.Lock()
		if delete(i.late, f); f == node.FileCookie {
			clear(i.bore)
		}
		i.mu.Unlock()
	}
}

// leavers removes a best-effort attribute from all threads of the machine: a
// thread that was moved out of a best-effort cgroup keeps it, and is in no
// managed cgroup. leavers runs after the last release only, since it reads
// every thread. While another component's scheduler is loaded, threads with the
// policy belong to that.
func (h *Host) leavers(f node.File) error {
	i := &h.isolation
	i.mu.Lock()
	ours, bore := i.scheduler.loaded != nil, maps.Clone(i.bore)
	i.mu.Unlock()
	var err error
	switch {
	case f == node.FilePolicy && (ours || foreignScheduler(h.fs.Sys) == ""):
		_, err = i.ext.shorten(h.allThreads)
	case f == node.FileSlice:
		_, err = unlengthen(h.allThreads)
	case f == node.FileCookie && len(bore) > 0:
		_, err = i.core.clear(func() ([]int, error) {
			tids, err := h.allThreads()
			return slices.DeleteFunc(tids, func(tid int) bool {
				id, err := i.core.cookieOf(tid)
				return err != nil || !bore[id]
			}), err
		})
	}
	if err != nil {
		return fmt.Errorf("look for threads that have left best-effort groups: %w", err)
	}
	return nil
}

// allThreads lists all threads of the machine but kernel threads, which never
// have these attributes.
func (h *Host) allThreads() ([]int, error) {
	pids, err := h.fs.PIDs()
	if err != nil {
		return nil, err
	}
	var all []int
	for _, pid := range pids {
		tids, _ := h.fs.Threads(pid) // empty: the process has ended
		all = append(all, tids...)
	}
	return all, nil
}

// noteCookies records the cookies of threads before they are cleared. If this
// process has set none, the cookies in a best-effort cgroup are an earlier
// agent's.
func (h *Host) noteCookies(list task.List) {
	i := &h.isolation
	tids, _ := list() // clearing them fails likewise, and reports it
	ids := map[uint64]bool{}
	for _, tid := range tids {
		if id, err := i.core.cookieOf(tid); err == nil && id != 0 && !i.strange(id) {
			ids[id] = true
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cookies != nil {
		ids[i.cookies.ID()] = true
	}
	maps.Copy(i.bore, ids)
}

// unconvert removes the attribute of a knob from its threads.
func (h *Host) unconvert(k node.Knob) error {
	i := &h.isolation
	i.mu.Lock()
	given := i.given[k]
	delete(i.given, k) // so that no stray gets it meanwhile
	i.mu.Unlock()
	err := h.takeBack(k)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		if given {
			i.given[k] = true // some threads still have it: try again
		}
		return err
	}
	delete(i.apart, k)
	if k.File != node.FileCookie {
		return nil
	}
	last := !slices.ContainsFunc(slices.Collect(maps.Keys(i.given)), func(g node.Knob) bool { return g.File == node.FileCookie })
	if last && i.cookies != nil {
		i.cookies.Close() // without a cookie left, core scheduling and its cost end
		i.cookies = nil
	}
	return nil
}

// takeBack removes the attribute of a knob from the threads in and below its
// cgroup.
func (h *Host) takeBack(k node.Knob) error {
	list := func() ([]int, error) { return subtree.Threads(h.tree, k.Cgroup) }
	switch k.File {
	case node.FilePolicy:
		_, err := h.isolation.ext.shorten(list)
		return err
	case node.FileSlice:
		_, err := unlengthen(list)
		return err
	}
	h.noteCookies(list)
	_, err := h.isolation.core.clear(func() ([]int, error) {
		tids, err := list()
		return slices.DeleteFunc(tids, h.isolation.hasStrange), err
	})
	return err
}
