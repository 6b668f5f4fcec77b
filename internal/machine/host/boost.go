package host

import (
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// boostFor is how long a cgroup that was asked to end, or killed, is exempt
// from isolation so that it can end. A cancelled eviction is not announced:
// after boostFor the remaining threads are best-effort again. A further kill
// starts the time again.
const boostFor = 30 * time.Second

// A sparing is the exemption of a cgroup's threads from isolation.
type sparing struct {
	inode uint64
	until time.Time // zero: while the cgroup is frozen
	ends  node.Run  // node.AskedToEnd or node.Ended; empty: frozen
	// eased: Tenon cleared cpu.idle of the cgroup, and reports the policy's
	// value for its weight.
	eased bool
}

// spares reports whether exactly this cgroup is exempt; i.mu is held.
func (i *isolation) spares(p node.CgroupPath) bool {
	_, is := i.spared[p]
	return is
}

// endOf returns the last request to end a cgroup; empty: it is not ending.
func (i *isolation) endOf(p node.CgroupPath) node.Run {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.spared[p].ends
}

// killed records that an ending cgroup is killed.
func (i *isolation) killed(p node.CgroupPath) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v, is := i.spared[p]; is {
		v.ends = node.Ended
		i.spared[p] = v
	}
}

// boost moves the threads of a cgroup to the fair class until the given time: a
// thread has to run in order to exit or to freeze. In the BPF scheduler it
// would run later, or be reported as stalled.
func (h *Host) boost(p node.CgroupPath, until time.Time, ends node.Run) error {
	inode, err := h.tree.Inode(string(p))
	if err != nil {
		return err
	}
	i := &h.isolation
	i.mu.Lock()
	i.spared[p] = sparing{inode: inode, until: until, ends: ends, eased: i.spared[p].eased && i.spared[p].inode == inode}
	governed := slices.ContainsFunc(slices.Collect(maps.Keys(i.given)), func(k node.Knob) bool {
		return k.File == node.FilePolicy && (k.Cgroup.Contains(p) || p.Contains(k.Cgroup))
	})
	i.mu.Unlock()
	if !governed {
		return nil
	}
	_, err = i.ext.shorten(func() ([]int, error) { return subtree.Threads(h.tree, p) })
	return err
}

// ease clears cpu.idle of a killed cgroup if Tenon has set it: with the CPU
// time of an idle cgroup beside busy services, a large process frees its memory
// only slowly. A cgroup that was only asked to end stays idle, because its
// processes may still do other work.
func (h *Host) ease(p node.CgroupPath) error {
	k := node.Knob{Cgroup: p, File: node.FileCPUWeight}
	s, err := h.journal.State()
	if err != nil {
		return err
	}
	t := s.Touches[k]
	before, known := t.Before.(node.CPUWeight)
	if t.Written != node.Value(node.CPUWeight{Idle: true}) || !known || before.Idle {
		return nil
	}
	i := &h.isolation
	i.mu.Lock()
	sparing, boosted := i.spared[p]
	if sparing.eased = true; boosted {
		i.spared[p] = sparing
	}
	i.mu.Unlock()
	if !boosted {
		return nil // the cgroup is gone
	}
	return h.tree.WriteCPUWeight(string(p), cgroup.CPUWeight(before))
}

// asked returns the weight to report for a cgroup. While a dying cgroup is not
// idle, it reports the policy's value, so that the next tick does not undo the
// change.
func (h *Host) asked(k node.Knob, now node.CPUWeight) node.Value {
	i := &h.isolation
	i.mu.Lock()
	v, boosted := i.spared[k.Cgroup]
	i.mu.Unlock()
	if !boosted || !v.eased {
		return now
	}
	if inode, err := h.tree.Inode(string(k.Cgroup)); err != nil || inode != v.inode {
		return now
	}
	return node.CPUWeight{Idle: true}
}

// uneased records that a step has set the weight of a cgroup.
func (i *isolation) uneased(p node.CgroupPath) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v, boosted := i.spared[p]; boosted && v.eased {
		v.eased = false
		i.spared[p] = v
	}
}

// unboost ends the exemption of a cgroup that did not end: its knobs show their
// real values again, and the next tick sets them.
func (h *Host) unboost(p node.CgroupPath) {
	i := &h.isolation
	i.mu.Lock()
	v, boosted := i.spared[p]
	if !boosted {
		i.mu.Unlock()
		return
	}
	delete(i.spared, p)
	i.stale = true
	var anew []node.Knob
	if v.eased {
		anew = append(anew, node.Knob{Cgroup: p, File: node.FileCPUWeight})
	}
	for q, a := range i.asked {
		if p.Contains(q) && a.want == node.IdentityBE && a.shown == node.IdentityNone { // unmark
			delete(i.asked, q)
			anew = append(anew, node.Knob{Cgroup: q, File: node.FileIdentity})
		}
	}
	i.mu.Unlock()
	for _, k := range anew {
		h.sight.anew(k)
	}
}

// endBoosts ends the exemptions of cgroups that have ended, and those that have
// expired: later processes there are new work.
func (h *Host) endBoosts(at time.Time) {
	i := &h.isolation
	i.mu.Lock()
	all := maps.Clone(i.spared)
	i.mu.Unlock()
	for p, v := range all {
		now, err := h.tree.Inode(string(p))
		lives, _ := h.tree.Populated(string(p))
		if over := !v.until.IsZero() && !at.Before(v.until); over || err != nil || now != v.inode || !lives {
			h.unboost(p)
		}
	}
}
