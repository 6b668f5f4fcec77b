package isolation

import (
	"errors"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

// A tally counts threads by the attribute of one knob. The field be counts
// threads with the best-effort attribute, and others those with the usual one.
// left counts threads that Tenon does not change: real-time threads, and
// threads that chose their slice.
type tally struct{ be, others, left int }

func (a tally) plus(b tally) tally { return tally{a.be + b.be, a.others + b.others, a.left + b.left} }

// tallies holds the last tally of each workload and of each knob's cgroup. A tally
// stays valid while its cgroup uses no CPU, because no thread of the cgroup can
// then create threads or change attributes. Another process may move a thread into
// the cgroup, or change one. This thread is counted after it has run.
type tallies map[node.Knob]map[node.CgroupPath]tallied

type tallied struct {
	tally
	used time.Duration // CPU time when the threads were counted
}

// tallyOf counts the threads in and below the cgroup of a knob. It omits those
// for which the function demoted returns true.
func tallyOf(i *Isolation, k node.Knob, demoted func(tid int) bool) (tally, error) {
	i.mu.Lock()
	w := tallyWalk{i: i, k: k, demoted: demoted, classes: i.classes, used: i.used, tops: i.tops, was: i.tallies[k], now: map[node.CgroupPath]tallied{}}
	i.mu.Unlock()
	for q := k.Cgroup; q != ""; q = q.Parent() {
		if i.exempt.Has(q) {
			return tally{}, nil
		}
	}
	n, err := w.countAll()
	i.mu.Lock()
	defer i.mu.Unlock()
	if delete(i.tallies, k); err == nil && i.resident {
		i.tallies[k] = w.now
	}
	return n, err
}

// A tallyWalk is one run of tallyOf: it walks through the cgroups below a knob's cgroup.
type tallyWalk struct {
	i        *Isolation
	k        node.Knob
	demoted  func(tid int) bool
	classes  map[node.CgroupPath]node.Class
	used     map[node.CgroupPath]time.Duration
	tops     map[node.CgroupPath]time.Duration // CPU time of the knobs' cgroups
	was, now map[node.CgroupPath]tallied
}

// Begin reads how much CPU the cgroups of thread knobs have used. Such a cgroup
// may contain thousands of workloads, and its CPU time shows whether any of
// them has run. Call Begin before the counters of workloads are read. Otherwise
// a thread that runs between the two readings would be missed.
func Begin(i *Isolation) {
	if i.tree == nil || !i.resident {
		return
	}
	i.mu.Lock()
	tops := make(map[node.CgroupPath]time.Duration, len(i.converted))
	for k := range i.converted {
		if _, counted := i.used[k.Cgroup]; !counted { // true: it is a workload, so used has its CPU time
			tops[k.Cgroup] = 0
		}
	}
	i.mu.Unlock()
	for p := range tops {
		used, err := i.tree.CPUUsage(string(p))
		if tops[p] = used; err != nil {
			delete(tops, p)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tops = tops
}

// countAll counts the threads in and below the knob's cgroup.
func (w *tallyWalk) countAll() (tally, error) {
	p := w.k.Cgroup
	used, counted := w.usedBy(p)
	if last, had := w.was[p]; had && counted && last.used == used {
		w.now = w.was // nothing in the cgroup has run, so all its tallies stay valid
		return last.tally, nil
	}
	return w.countThreads(p)
}

// usedBy returns the CPU time of a cgroup, if it is known.
func (w *tallyWalk) usedBy(p node.CgroupPath) (time.Duration, bool) {
	if used, counted := w.used[p]; counted {
		return used, true
	}
	if p != w.k.Cgroup {
		return 0, false
	}
	used, counted := w.tops[p]
	return used, counted
}

// dropTallies drops the tallies of cgroups whose class has changed, and of the
// cgroups above them. classes holds the new classes. The caller holds i.mu.
func dropTallies(i *Isolation, classes map[node.CgroupPath]node.Class) {
	dropped := map[node.CgroupPath]bool{}
	drop := func(p node.CgroupPath) {
		for ; p != "" && !dropped[p]; p = p.Parent() {
			dropped[p] = true
		}
	}
	for p, class := range classes {
		if i.classes[p] != class {
			drop(p)
		}
	}
	for p := range i.classes {
		if _, is := classes[p]; !is {
			drop(p)
		}
	}
	// Make new maps: a count in progress may read the old ones.
	for k, of := range i.tallies {
		kept := make(map[node.CgroupPath]tallied, len(of))
		for p, n := range of {
			if !dropped[p] {
				kept[p] = n
			}
		}
		i.tallies[k] = kept
	}
}

// list returns the names of the child cgroups of p. A resident host reads them
// only once until cgroups come or go.
func (w *tallyWalk) list(p node.CgroupPath) ([]string, error) {
	w.i.mu.Lock()
	known := w.i.children // replaced when cgroups come or go
	names, listed := known[p]
	w.i.mu.Unlock()
	if listed {
		return names, nil
	}
	names, err := w.i.tree.Children(string(p))
	if err == nil && w.i.resident && len(names) > 0 {
		w.i.mu.Lock()
		known[p] = names
		w.i.mu.Unlock()
	}
	return names, err
}

// countThreads counts the threads in and below a cgroup. It omits cgroups of
// other classes and exempt cgroups, and cgroups below p that cannot be read.
// Otherwise one such cgroup, which any user can make, would hide the state of all
// threads. If the cgroup does not exist any more, it returns cgroup.ErrGone.
func (w *tallyWalk) countThreads(p node.CgroupPath) (tally, error) {
	if class, is := w.classes[p]; is && class != node.BE || w.i.exempt.Has(p) {
		return tally{}, nil
	}
	used, counted := w.usedBy(p)
	if last, had := w.was[p]; had && counted && last.used == used {
		w.now[p] = last
		return last.tally, nil
	}
	tids, err := w.i.tree.Threads(string(p))
	if err != nil {
		return tally{}, err
	}
	sum, err := w.i.attributes[w.k.File].count(slices.DeleteFunc(tids, w.demoted))
	if err != nil {
		return tally{}, err
	}
	children, err := w.list(p)
	if errors.Is(err, cgroup.ErrGone) {
		return tally{}, err
	}
	for _, name := range children {
		if n, err := w.countThreads(p.Join(name)); err == nil {
			sum = sum.plus(n)
		}
	}
	if counted {
		w.now[p] = tallied{sum, used}
	}
	return sum, nil
}
