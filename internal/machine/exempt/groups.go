// Package exempt holds the cgroups that are exempt from isolation. A thread
// must be able to run in order to freeze or to exit.
package exempt

import (
	"maps"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// MaxTime is the maximum time for which a cgroup that was asked to end, or
// killed, is exempt from isolation, so that it can end. If an eviction is
// cancelled, Tenon does not learn about it. After this time the remaining
// threads are best-effort again. Another kill starts the time again.
const MaxTime = 30 * time.Second

// An exemption says until when the threads of one cgroup are exempt from
// isolation, and why.
type exemption struct {
	inode uint64
	until time.Time // zero: the exemption lasts while the cgroup is frozen
	ends  node.Run  // node.AskedToEnd or node.Ended; empty: frozen
	// notIdle says that Tenon cleared cpu.idle of the cgroup. Snapshots still
	// show the policy's value for its weight.
	notIdle bool
}

// Groups are the exempt cgroups. It is safe for concurrent use.
type Groups struct {
	tree     *cgroup.Tree
	journal  *journal.Journal
	makeFair func(node.CgroupPath) error
	ended    func(p node.CgroupPath, notIdle bool)

	mu     sync.Mutex
	exempt map[node.CgroupPath]exemption
}

// New returns the exempt cgroups of a tree. At first there are none. makeFair
// moves the threads of a cgroup to the fair class, if isolation has put them
// into another class. A function (ended) is called when a cgroup is not exempt
// any more, although it still exists. notIdle says that its weight differs from
// what snapshots have shown.
func New(tree *cgroup.Tree, j *journal.Journal, makeFair func(node.CgroupPath) error, ended func(p node.CgroupPath, notIdle bool)) *Groups {
	return &Groups{tree: tree, journal: j, makeFair: makeFair, ended: ended, exempt: map[node.CgroupPath]exemption{}}
}

// Has reports whether exactly this cgroup is exempt.
func (g *Groups) Has(p node.CgroupPath) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, is := g.exempt[p]
	return is
}

// Ending returns the last request to end a cgroup, or "".
func (g *Groups) Ending(p node.CgroupPath) node.Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.exempt[p].ends
}

// Killed records that Tenon kills a cgroup that is ending.
func (g *Groups) Killed(p node.CgroupPath) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, is := g.exempt[p]; is {
		v.ends = node.Ended
		g.exempt[p] = v
	}
}

// Add makes a cgroup exempt until the given time, and moves its threads to the
// fair class. The argument ends is the request to end the cgroup, or empty.
func (g *Groups) Add(p node.CgroupPath, until time.Time, ends node.Run) error {
	inode, err := g.tree.Inode(string(p))
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.exempt[p] = exemption{inode: inode, until: until, ends: ends, notIdle: g.exempt[p].notIdle && g.exempt[p].inode == inode}
	g.mu.Unlock()
	return g.makeFair(p)
}

// ClearIdle clears cpu.idle of a killed cgroup if Tenon set it. Beside busy
// services, an idle cgroup gets little CPU time, so that a large process would
// free its memory slowly. If a cgroup was only asked to end, it stays idle,
// because its processes may still do other work.
func (g *Groups) ClearIdle(p node.CgroupPath) error {
	k := node.Knob{Cgroup: p, File: node.FileCPUWeight}
	s, err := g.journal.State()
	if err != nil {
		return err
	}
	t := s.Touches[k]
	before, known := t.Before.(node.CPUWeight)
	if t.Written != node.Value(node.CPUWeight{Idle: true}) || !known || before.Idle {
		return nil
	}
	g.mu.Lock()
	v, isExempt := g.exempt[p]
	if v.notIdle = true; isExempt {
		g.exempt[p] = v
	}
	g.mu.Unlock()
	if !isExempt {
		return nil // the cgroup is gone
	}
	return g.tree.WriteCPUWeight(string(p), cgroup.CPUWeight(before))
}

// Weight returns the weight that snapshots show for a cgroup. While Tenon has
// cleared cpu.idle of an ending cgroup, this is the policy's value. Otherwise
// the next tick would set cpu.idle again.
func (g *Groups) Weight(k node.Knob, now node.CPUWeight) node.Value {
	g.mu.Lock()
	v, isExempt := g.exempt[k.Cgroup]
	g.mu.Unlock()
	if !isExempt || !v.notIdle {
		return now
	}
	if inode, err := g.tree.Inode(string(k.Cgroup)); err != nil || inode != v.inode {
		return now
	}
	return node.CPUWeight{Idle: true}
}

// WeightSet records that a step wrote the weight of a cgroup.
func (g *Groups) WeightSet(p node.CgroupPath) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, isExempt := g.exempt[p]; isExempt && v.notIdle {
		v.notIdle = false
		g.exempt[p] = v
	}
}

// End ends the exemption of a cgroup that did not end. Snapshots then show the
// real values of its knobs again, and the next tick sets them.
func (g *Groups) End(p node.CgroupPath) {
	g.mu.Lock()
	v, isExempt := g.exempt[p]
	delete(g.exempt, p)
	g.mu.Unlock()
	if isExempt {
		g.ended(p, v.notIdle)
	}
}

// EndOver ends the exemptions of cgroups that have ended, and those whose time
// is over. Processes that start in such a cgroup later are new work.
func (g *Groups) EndOver(at time.Time) {
	g.mu.Lock()
	all := maps.Clone(g.exempt)
	g.mu.Unlock()
	for p, v := range all {
		now, err := g.tree.Inode(string(p))
		lives, _ := g.tree.IsPopulated(string(p))
		if over := !v.until.IsZero() && !at.Before(v.until); over || err != nil || now != v.inode || !lives {
			g.End(p)
		}
	}
}
