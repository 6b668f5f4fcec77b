package host

import (
	"maps"
	"slices"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

// boostFor is for how long a group that was asked to end, or killed, is treated
// so that it can. Nobody says when an eviction is called off: what is still
// there then is best-effort work again, and what is killed again gets as long
// again.
const boostFor = 30 * time.Second

// A sparing is for how long the threads of a group stay normal.
type sparing struct {
	inode uint64
	until time.Time // zero: as long as it is frozen
	ends  node.Run  // node.AskedToEnd or node.Ended; empty: it is frozen
	// eased: its own cpu.idle was cleared, and the knob shows what was asked for.
	eased bool
}

// spares reports whether the threads of exactly this group are spared; i.mu is
// held.
func (i *isolation) spares(p node.CgroupPath) bool {
	_, is := i.spared[p]
	return is
}

// endOf says how a group was last told to end; empty: its end is not under way.
func (i *isolation) endOf(p node.CgroupPath) node.Run {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.spared[p].ends
}

// killed notes that a group that was told to end is killed.
func (i *isolation) killed(p node.CgroupPath) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v, is := i.spared[p]; is {
		v.ends = node.Ended
		i.spared[p] = v
	}
}

// boost gives a group's threads, that are about to end or to stand still, to
// the kernel's own scheduler until then: a thread has to run for both, and one
// that waits for its turn in ours would do so later, or be mistaken for a
// stalled one.
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
	_, err = i.ext.shorten(func() ([]int, error) { return h.everyThread(p) })
	return err
}

// ease clears cpu.idle of a killed group's own where Tenon has set it: with what
// an idle group gets beside busy services, a large process takes long to give
// its memory back. One that was only asked to end stays idle, since nobody knows
// what it does until it does end.
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
		return nil // it is gone
	}
	return h.tree.WriteCPUWeight(string(p), cgroup.CPUWeight(before))
}

// asked is what the weight of a group shows: of one that was eased what was
// asked for, so that nobody takes back what it needs in order to end.
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

// uneased notes that somebody has another use for the weight of a group.
func (i *isolation) uneased(p node.CgroupPath) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v, boosted := i.spared[p]; boosted && v.eased {
		v.eased = false
		i.spared[p] = v
	}
}

// unboost ends that for a group that goes on: its knobs show again what they
// are, and get what they should have.
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

// endBoosts ends the boosts of groups that have ended, and of those that should
// have by now. What is there later is new work.
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
