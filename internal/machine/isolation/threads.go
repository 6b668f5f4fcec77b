package isolation

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// demotedFor is the time that a demoted thread stays in the fair class.
const demotedFor = 5 * time.Second

// latePause is the time that a restore waits before it looks for threads that
// were created meanwhile.
const latePause = 50 * time.Millisecond

// ErrOwn means that a cgroup contains a process that must not stop: one of
// Tenon, or one of the system.
var ErrOwn = errors.New("it holds a process of Tenon or of the system")

// ErrNotBE means that a cgroup contains work of another class.
var ErrNotBE = errors.New("it is not best-effort work")

// bestEffort lists the threads in and below a cgroup. It omits cgroups of other
// classes and exempt cgroups.
func (i *Isolation) bestEffort(p node.CgroupPath) ([]int, error) {
	i.mu.Lock()
	own := i.classes
	i.mu.Unlock()
	for q := p; q != ""; q = q.Parent() {
		if i.exempt.Has(q) {
			return nil, nil
		}
	}
	return subtree.ThreadsBut(i.tree, p, func(q node.CgroupPath) bool {
		class, is := own[q]
		return is && class != node.BE || i.exempt.Has(q)
	})
}

// readThreads returns whether all, some or none of the threads in and below a
// cgroup have the attribute of a knob. It ignores real-time, exempt and demoted
// threads, and threads that chose their slice. If there are no others, it
// returns the value that Tenon last set.
func (i *Isolation) readThreads(k node.Knob) (node.Value, error) {
	i.mu.Lock()
	given, demoted := i.converted[k], maps.Clone(i.demoted)
	i.mu.Unlock()
	n, err := tallyOf(i, k, func(tid int) bool { _, is := demoted[tid]; return is })
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	if i.leftAlone[k] = n.left; n.left == 0 {
		delete(i.leftAlone, k)
	}
	i.mu.Unlock()
	switch {
	case n.be > 0 && n.others > 0:
		return node.ThreadsMixed, nil
	case n.be > 0 || n.others == 0 && given:
		return node.ThreadsBE, nil
	}
	return node.ThreadsNormal, nil
}

// writeThreads gives the best-effort attribute of a knob to all threads in and
// below a cgroup, or removes it.
func (i *Isolation) writeThreads(k node.Knob, v node.Threads) error {
	defer func() {
		i.mu.Lock()
		delete(i.seen, k)
		delete(i.tallies, k)
		i.mu.Unlock()
	}()
	switch v {
	case node.ThreadsBE:
		if err := i.mayConvert(k.Cgroup); err != nil {
			return fmt.Errorf("make best-effort threads of %s: %w", k.Cgroup, err)
		}
		i.mu.Lock()
		again := i.converted[k]
		i.converted[k] = true
		i.mu.Unlock()
		n, err := i.convert(k)
		if again && k.File != node.FileSlice { // the changed threads were created or moved in since
			i.mu.Lock()
			i.status.Strays += uint64(n)
			i.status.Converted += uint64(n)
			i.mu.Unlock()
		}
		return err
	case node.ThreadsNormal:
		return i.unconvert(k)
	}
	return fmt.Errorf("write %v: threads are made %s or %s", k, node.ThreadsBE, node.ThreadsNormal)
}

// mayConvert returns an error if a cgroup contains processes of Tenon or of the
// system, or work of another class. With the attribute, their threads would not
// run in time.
func (i *Isolation) mayConvert(p node.CgroupPath) error {
	i.mu.Lock()
	class, is := i.classes[p]
	i.mu.Unlock()
	if is && class != node.BE {
		return fmt.Errorf("it is of class %s: %w", class, ErrNotBE)
	}
	if p == "" {
		return ErrOwn
	}
	tids, err := subtree.Threads(i.tree, p)
	if err != nil && !partial.Is(err) {
		return err
	}
	for _, pid := range []int{1, os.Getpid()} {
		inside := slices.Contains(tids, pid)
		if err != nil && !inside {
			if inside, err = IsInside(i.fs, pid, p); err != nil {
				return err
			}
		}
		if inside {
			return fmt.Errorf("process %d: %w", pid, ErrOwn)
		}
	}
	return nil
}

// IsInside reports whether a process is in or below a cgroup. It reads the
// cgroup of the process, and needs no list of processes.
func IsInside(fs proc.FS, pid int, p node.CgroupPath) (bool, error) {
	path, err := proc.FindCPUPath(fs.Cgroup(pid))
	return err == nil && p.Contains(node.CgroupPath(strings.Trim(path, "/"))), err
}

// convert sets the attribute of a knob on the threads of its cgroup.
func (i *Isolation) convert(k node.Knob) (int, error) {
	return i.attributes[k.File].give(func() ([]int, error) { return i.bestEffort(k.Cgroup) })
}

// withCookies lists threads that may have the cookie of an earlier agent: those
// in the cgroups of knobs. The next check finds the threads in cgroups below.
func (i *Isolation) withCookies() []int {
	i.mu.Lock()
	defer i.mu.Unlock()
	var from []int
	for k := range i.converted {
		if k.File == node.FileCookie {
			tids, _ := i.tree.Threads(string(k.Cgroup)) //nolint:errcheck // the next check finds the threads that are missed here
			from = append(from, tids...)
			subtree.EachProcess(i.tree, k.Cgroup, func(pid int) { from = append(from, pid) })
		}
	}
	return from
}

// TakeBackLate removes attributes from threads that a restore has missed. A new
// thread has its parent's attributes before it appears in the list of threads.
// It may appear much later if best-effort work gets little CPU.
func (i *Isolation) TakeBackLate(knobs []node.Knob) error {
	if len(knobs) == 0 {
		return nil
	}
	var errs []error
	time.Sleep(latePause)
	for _, k := range knobs {
		if err := i.takeBack(k); err != nil && !errors.Is(err, cgroup.ErrGone) {
			errs = append(errs, fmt.Errorf("restore %v once more: %w", k, err))
		}
	}
	return errors.Join(errs...)
}

// verifyThreads adds the thread knobs that Tenon has set to a snapshot. It
// reads those that are due for a check, and takes the others from the cache.
func (i *Isolation) verifyThreads(at time.Time, into map[node.Knob]node.Value) {
	i.mu.Lock()
	knobs := slices.SortedFunc(maps.Keys(i.converted), node.Knob.Compare)
	maps.DeleteFunc(i.seen, func(k node.Knob, _ node.Value) bool { return !i.converted[k] })
	maps.DeleteFunc(i.leftAlone, func(k node.Knob, _ int) bool { return !i.converted[k] })
	all := i.stale || i.changed || !i.resident
	if i.stale || !i.resident {
		clear(i.tallies)
	}
	i.stale, i.changed = false, false
	maps.DeleteFunc(i.tallies, func(k node.Knob, _ map[node.CgroupPath]tallied) bool { return !i.converted[k] })
	due := map[node.Knob]bool{}
	for n := range i.reads.Due(at, len(knobs), reread.Changed) {
		due[knobs[n]] = true
	}
	for _, k := range knobs {
		if _, known := i.seen[k]; !known || all {
			due[k] = true
		}
	}
	i.mu.Unlock()
	for k := range due {
		v, err := i.readThreads(k)
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
