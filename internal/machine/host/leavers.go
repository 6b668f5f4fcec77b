package host

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// mayHave reports whether threads may still have what a journaled knob gave
// them: also while it is being taken back, and after that has failed.
func mayHave(t journal.Touch) bool {
	return t.Written != node.Value(node.ThreadsNormal) || t.Pending != nil && t.Pending != node.Value(node.ThreadsNormal)
}

// lastLeave does what is left to do with the last knob of threads that is
// journaled for its file, by whatever process: what is not taken with it, nothing
// takes. Of other knobs it does nothing.
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
		i.late[k.File] = h.now().Add(glanceWithin)
	} else if k.File == node.FileCookie {
		clear(i.bore)
	}
	return nil
}

// leaveLate does it once more, a while later: who was being made while all
// threads were looked at has a copy of what was taken from its parent.
func (h *Host) leaveLate(at time.Time) {
	i := &h.isolation
	i.mu.Lock()
	due := maps.Clone(i.late)
	for k := range i.given {
		delete(i.late, k.File) // it is in use again
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

// leavers takes from all threads of the machine what only best-effort ones got:
// whoever was moved out of a best-effort group has kept it, and is in no group
// that anybody looks after. It is for after the last release, since it looks at
// every thread. Threads that have the policy while somebody else's scheduler is loaded
// are that one's.
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

// allThreads lists those of the machine. Kernel threads have nothing of ours,
// and do not matter.
func (h *Host) allThreads() ([]int, error) {
	pids, err := h.fs.PIDs()
	if err != nil {
		return nil, err
	}
	var all []int
	for _, pid := range pids {
		tids, _ := h.fs.Threads(pid) // it has ended: none
		all = append(all, tids...)
	}
	return all, nil
}

// noteCookies remembers the cookies of threads that are about to lose them. Where
// this process has given none, those in a best-effort group are an earlier
// agent's.
func (h *Host) noteCookies(list task.List) {
	i := &h.isolation
	tids, _ := list() // who cannot be listed cannot be cleared either, which is told
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

// unconvert takes from the threads of a knob what it gave.
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
			i.given[k] = true // some have it, and it is to be tried again
		}
		return err
	}
	delete(i.apart, k)
	if k.File != node.FileCookie {
		return nil
	}
	last := !slices.ContainsFunc(slices.Collect(maps.Keys(i.given)), func(g node.Knob) bool { return g.File == node.FileCookie })
	if last && i.cookies != nil {
		i.cookies.Close() // with the last bearer core scheduling ends, and what it costs
		i.cookies = nil
	}
	return nil
}

// takeBack takes from the threads in and below the cgroup of a knob what it is
// about.
func (h *Host) takeBack(k node.Knob) error {
	list := func() ([]int, error) { return h.everyThread(k.Cgroup) }
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
