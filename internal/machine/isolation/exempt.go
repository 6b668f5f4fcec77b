// This file holds the cgroups that are exempt from isolation. Their threads
// must run in order to freeze or to exit.

package isolation

import (
	"errors"
	"maps"
	"sync"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// MaxExempt is the time for which a cgroup stays exempt after it was killed or
// asked to end. Tenon does not learn when an eviction is cancelled, so the
// threads that are left after this time are best-effort again. Another kill
// starts the time again.
const MaxExempt = 30 * time.Second

// An exemption says why and until when one cgroup is exempt from isolation.
// inode distinguishes the cgroup from a later one with the same name.
type exemption struct {
	inode uint64
	until time.Time // zero: the exemption lasts while the cgroup is frozen
	ends  node.Run  // node.AskedToEnd or node.Ended; empty: frozen
	// notIdle means that Tenon cleared cpu.idle of the cgroup against the value
	// that the policy set.
	notIdle bool
}

// Exempt is the set of exempt cgroups. It is safe for concurrent use.
type Exempt struct {
	tree     *cgroup.Tree
	journal  *journal.Journal
	makeFair func(node.CgroupPath) error
	ended    func(p node.CgroupPath, notIdle bool)

	mu     sync.Mutex
	exempt map[node.CgroupPath]exemption
}

// newExempt returns the set of exempt cgroups of a tree, empty at first. makeFair
// moves the threads of a cgroup from another scheduling class to the fair
// class. Groups calls ended when the exemption of a cgroup ends, unless it
// knows that the cgroup is gone. notIdle is then true if cpu.idle is clear
// although snapshots showed it as set.
func newExempt(tree *cgroup.Tree, j *journal.Journal, makeFair func(node.CgroupPath) error, ended func(p node.CgroupPath, notIdle bool)) *Exempt {
	return &Exempt{tree: tree, journal: j, makeFair: makeFair, ended: ended, exempt: map[node.CgroupPath]exemption{}}
}

// Has reports whether p is exempt. It does not look at the cgroups above p.
func (g *Exempt) Has(p node.CgroupPath) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, is := g.exempt[p]
	return is
}

// Ending returns the last request to end a cgroup, or "" if there was none.
func (g *Exempt) Ending(p node.CgroupPath) node.Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.exempt[p].ends
}

// Killed records that Tenon now kills a cgroup that it had asked to end.
func (g *Exempt) Killed(p node.CgroupPath) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, is := g.exempt[p]; is {
		v.ends = node.Ended
		g.exempt[p] = v
	}
}

// Add makes a cgroup exempt until the given time, and moves its threads to the
// fair class. ends is the request to end the cgroup, or "" for a frozen cgroup.
func (g *Exempt) Add(p node.CgroupPath, until time.Time, ends node.Run) error {
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
// services, an idle cgroup gets little CPU time, so a large process would free
// its memory slowly. A cgroup whose processes only got SIGTERM stays idle,
// because they may still do other work.
func (g *Exempt) ClearIdle(p node.CgroupPath) error {
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

// Weight returns the weight that snapshots show for a cgroup. After ClearIdle,
// it still returns idle, because otherwise the next tick would set cpu.idle
// again.
func (g *Exempt) Weight(k node.Knob, now node.CPUWeight) node.Value {
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

// WeightSet records that a step of the plan wrote the weight of a cgroup.
func (g *Exempt) WeightSet(p node.CgroupPath) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, isExempt := g.exempt[p]; isExempt && v.notIdle {
		v.notIdle = false
		g.exempt[p] = v
	}
}

// End ends the exemption of a cgroup. If the cgroup still exists, snapshots
// show the real values of its knobs again, and the next tick sets them.
func (g *Exempt) End(p node.CgroupPath) {
	g.mu.Lock()
	v, isExempt := g.exempt[p]
	delete(g.exempt, p)
	g.mu.Unlock()
	if isExempt {
		g.ended(p, v.notIdle)
	}
}

// EndOver ends the exemptions of cgroups that have ended, and those whose time is
// over. Processes that start in such a cgroup later are new work and not exempt.
func (g *Exempt) EndOver(at time.Time) {
	g.mu.Lock()
	all := maps.Clone(g.exempt)
	g.mu.Unlock()
	for p, v := range all {
		now, err := g.tree.Inode(string(p))
		ended := errors.Is(err, cgroup.ErrGone) || err == nil && now != v.inode
		if lives, err := g.tree.IsPopulated(string(p)); err == nil && !lives {
			ended = true
		}
		if over := !v.until.IsZero() && !at.Before(v.until); over || ended {
			g.End(p)
		}
	}
}
