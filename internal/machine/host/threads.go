package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// spillFor is how long a demoted thread stays in the fair class.
const spillFor = 5 * time.Second

// latePause is the time after which a restore looks for threads created
// meanwhile.
const latePause = 50 * time.Millisecond

// errNotBE means that a cgroup contains work of another class.
var errNotBE = errors.New("it is not best-effort work")

// bestEffort lists the threads in and below a cgroup, without those of other
// classes and of exempt cgroups.
func (h *Host) bestEffort(p node.CgroupPath) ([]int, error) {
	i := &h.isolation
	i.mu.Lock()
	own, spared := i.own, maps.Clone(i.spared)
	i.mu.Unlock()
	for q := p; q != ""; q = q.Parent() {
		if _, is := spared[q]; is {
			return nil, nil
		}
	}
	return subtree.ThreadsBut(h.tree, p, func(q node.CgroupPath) bool {
		class, is := own[q]
		_, spares := spared[q]
		return is && class != node.BE || spares
	})
}

// readThreads reads the common attribute of the threads in and below a cgroup.
// Threads that are real-time, exempt, demoted or with a slice of their own do
// not count. If no thread counts, it returns the value that Tenon last set.
func (h *Host) readThreads(k node.Knob) (node.Value, error) {
	tids, err := h.bestEffort(k.Cgroup)
	if err != nil {
		return nil, err
	}
	i := &h.isolation
	i.mu.Lock()
	given, cookies := i.given[k], i.cookies
	tids = slices.DeleteFunc(tids, func(tid int) bool { _, is := i.spills[tid]; return is })
	i.mu.Unlock()
	var be, others, left int
	switch k.File {
	case node.FilePolicy:
		n, err := h.isolation.ext.count(tids)
		if err != nil {
			return nil, err
		}
		be, others, left = n.Ext, n.Fair, n.RealTime
	case node.FileSlice:
		if be, others, left, err = countSlices(tids); err != nil {
			return nil, err
		}
	default:
		for _, tid := range tids {
			id, err := i.core.cookieOf(tid)
			switch {
			case errors.Is(err, task.ErrGone):
			case err != nil:
				return nil, err
			case i.strange(id): // it stays as it is
			case id != 0 && (cookies == nil || id == cookies.ID()):
				be++
			default:
				others++
			}
		}
	}
	i.mu.Lock()
	if i.apart[k] = left; left == 0 {
		delete(i.apart, k)
	}
	i.mu.Unlock()
	switch {
	case be > 0 && others > 0:
		return node.ThreadsMixed, nil
	case be > 0 || others == 0 && given:
		return node.ThreadsBE, nil
	}
	return node.ThreadsNormal, nil
}

// writeThreads makes the threads in and below a cgroup best-effort, or normal.
func (h *Host) writeThreads(k node.Knob, v node.Threads) error {
	i := &h.isolation
	defer func() {
		i.mu.Lock()
		delete(i.seen, k)
		i.mu.Unlock()
	}()
	switch v {
	case node.ThreadsBE:
		if err := h.mayConvert(k.Cgroup); err != nil {
			return fmt.Errorf("make best-effort threads of %s: %w", k.Cgroup, err)
		}
		i.mu.Lock()
		again := i.given[k]
		i.given[k] = true
		i.mu.Unlock()
		n, err := h.convert(k)
		if again && k.File != node.FileSlice { // threads created or moved in since
			i.mu.Lock()
			i.status.Strays += uint64(n)
			i.status.Converted += uint64(n)
			i.mu.Unlock()
		}
		return err
	case node.ThreadsNormal:
		return h.unconvert(k)
	}
	return fmt.Errorf("write %v: threads are made %s or %s", k, node.ThreadsBE, node.ThreadsNormal)
}

// mayConvert refuses cgroups that contain processes which Tenon or the node
// needs, and work of other classes: no thread of such work would run in time.
func (h *Host) mayConvert(p node.CgroupPath) error {
	h.isolation.mu.Lock()
	class, is := h.isolation.own[p]
	h.isolation.mu.Unlock()
	if is && class != node.BE {
		return fmt.Errorf("it is of class %s: %w", class, errNotBE)
	}
	if p == "" {
		return ErrOwn
	}
	tids, err := subtree.Threads(h.tree, p)
	if err != nil {
		return err
	}
	for _, pid := range []int{1, os.Getpid()} {
		if slices.Contains(tids, pid) {
			return fmt.Errorf("process %d: %w", pid, ErrOwn)
		}
	}
	return nil
}

// convert sets the attribute of a knob on its threads.
func (h *Host) convert(k node.Knob) (int, error) {
	list := func() ([]int, error) { return h.bestEffort(k.Cgroup) }
	switch k.File {
	case node.FilePolicy:
		return h.isolation.ext.extend(list, h.spilled)
	case node.FileSlice:
		return lengthen(list)
	}
	c, err := h.cookie()
	if err != nil {
		return 0, err
	}
	return c.Share(list, h.isolation.hasStrange)
}

func (h *Host) spilled(tid int) bool {
	h.isolation.mu.Lock()
	defer h.isolation.mu.Unlock()
	_, is := h.isolation.spills[tid]
	return is
}

// cookie returns the cookie of best-effort threads, possibly an earlier
// agent's.
func (h *Host) cookie() (coreCookie, error) {
	i := &h.isolation
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cookies != nil {
		return i.cookies, nil
	}
	var from []int
	for k := range i.given {
		if k.File == node.FileCookie {
			tids, _ := h.tree.Threads(string(k.Cgroup)) // the next look finds those in cgroups below
			from = append(from, tids...)
			subtree.EachProcess(h.tree, k.Cgroup, func(pid int) { from = append(from, pid) })
		}
	}
	c, err := i.core.newCookie(from...)
	if err == nil {
		i.cookies = c
	}
	return c, err
}

// lateThreads removes attributes from threads that a restore has missed. A
// thread that is being created copies its parent's attributes and may be listed
// later: much later if best-effort work gets little CPU.
func (h *Host) lateThreads(knobs []node.Knob) error {
	if len(knobs) == 0 {
		return nil
	}
	var errs []error
	time.Sleep(latePause)
	for _, k := range knobs {
		if err := h.takeBack(k); err != nil && !errors.Is(err, cgroup.ErrGone) {
			errs = append(errs, fmt.Errorf("restore %v once more: %w", k, err))
		}
	}
	return errors.Join(errs...)
}

// verifyThreads adds the thread knobs that Tenon has set: from the cache,
// except for those due for a read.
func (h *Host) verifyThreads(at time.Time, into map[node.Knob]node.Value) {
	i := &h.isolation
	i.mu.Lock()
	knobs := slices.SortedFunc(maps.Keys(i.given), node.Knob.Compare)
	maps.DeleteFunc(i.seen, func(k node.Knob, _ node.Value) bool { return !i.given[k] })
	maps.DeleteFunc(i.apart, func(k node.Knob, _ int) bool { return !i.given[k] })
	all := i.stale || h.sight == nil
	i.stale = false
	due := map[node.Knob]bool{}
	for n := range i.turn.Due(at, len(knobs), reread.Changed) {
		due[knobs[n]] = true
	}
	for _, k := range knobs {
		if _, known := i.seen[k]; !known || all {
			due[k] = true
		}
	}
	i.mu.Unlock()
	for k := range due {
		v, err := h.readThreads(k)
		i.mu.Lock()
		if delete(i.seen, k); err == nil {
			i.seen[k] = v
		}
		i.mu.Unlock()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for k, v := range i.seen {
		into[k] = v
	}
}
