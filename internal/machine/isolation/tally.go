package isolation

import (
	"errors"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
)

// A tally says how many threads have which attribute, for one knob: be threads
// have the best-effort attribute, and others have the usual one. Tenon does not
// change the other threads (left), which are real-time threads and threads that
// chose their slice.
type tally struct{ be, others, left int }

func (a tally) plus(b tally) tally { return tally{a.be + b.be, a.others + b.others, a.left + b.left} }

// tallies are the last tallies of workloads, by knob and cgroup. If a workload
// has used no CPU since then, none of its threads ran. So none of them has
// created a thread or changed its attributes. If another process has moved a
// thread into the cgroup or has changed one, this thread is counted after it
// has run.
type tallies map[node.Knob]map[node.CgroupPath]tallied

type tallied struct {
	tally
	used time.Duration // CPU time when the threads were counted
}

// tallyOf counts the threads in and below the cgroup of a knob. If demoted
// returns true for a thread, the thread does not count.
func tallyOf(i *Isolation, k node.Knob, demoted func(tid int) bool) (tally, error) {
	i.mu.Lock()
	w := tallyWalk{i: i, k: k, demoted: demoted, classes: i.classes, used: i.used, was: i.tallies[k], now: map[node.CgroupPath]tallied{}}
	i.mu.Unlock()
	for q := k.Cgroup; q != ""; q = q.Parent() {
		if i.exempt.Has(q) {
			return tally{}, nil
		}
	}
	n, err := w.countThreads(k.Cgroup)
	i.mu.Lock()
	defer i.mu.Unlock()
	if delete(i.tallies, k); err == nil && i.resident {
		i.tallies[k] = w.now
	}
	return n, err
}

// A tallyWalk is one count of the threads for a knob.
type tallyWalk struct {
	i        *Isolation
	k        node.Knob
	demoted  func(tid int) bool
	classes  map[node.CgroupPath]node.Class
	used     map[node.CgroupPath]time.Duration
	was, now map[node.CgroupPath]tallied
}

// countThreads counts the threads in and below a cgroup. It does not count
// those of other classes and of exempt cgroups. If the cgroup itself does not
// exist any more, it fails with cgroup.ErrGone.
func (w *tallyWalk) countThreads(p node.CgroupPath) (tally, error) {
	if class, is := w.classes[p]; is && class != node.BE || w.i.exempt.Has(p) {
		return tally{}, nil
	}
	used, counted := w.used[p]
	if last, had := w.was[p]; had && counted && last.used == used {
		w.now[p] = last
		return last.tally, nil
	}
	tids, err := w.i.tree.Threads(string(p))
	if err != nil {
		return tally{}, err
	}
	sum, err := tallyThreads(w.i, w.k.File, slices.DeleteFunc(tids, w.demoted))
	if err != nil {
		return tally{}, err
	}
	children, err := w.i.tree.Children(string(p))
	if err != nil {
		return tally{}, err
	}
	for _, name := range children {
		n, err := w.countThreads(p.Join(name))
		if err != nil && !errors.Is(err, cgroup.ErrGone) {
			return tally{}, err
		}
		sum = sum.plus(n)
	}
	if counted {
		w.now[p] = tallied{sum, used}
	}
	return sum, nil
}

// tallyThreads counts the given threads by one attribute.
func tallyThreads(i *Isolation, f node.File, tids []int) (n tally, err error) {
	switch f {
	case node.FilePolicy:
		all, err := i.policies.Count(tids)
		return tally{all.Ext, all.Fair, all.RealTime}, err
	case node.FileSlice:
		n.be, n.others, n.left, err = i.slices.count(tids)
		return n, err
	}
	own := i.cookies.id()
	for _, tid := range tids {
		id, err := i.cookies.CookieOf(tid)
		switch {
		case errors.Is(err, task.ErrGone):
		case err != nil:
			return tally{}, err
		case i.cookies.isForeign(id): // the cookie is another component's and stays
		case id != 0 && (own == 0 || id == own):
			n.be++
		default:
			n.others++
		}
	}
	return n, nil
}
