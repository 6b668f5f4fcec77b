// Package vendormark reads and writes the marks by which some vendors' kernels
// keep best-effort cgroups from delaying others. It also handles the global
// switch that such a kernel may have for these marks.
package vendormark

import (
	"errors"
	"maps"
	"sync"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// A roundedMark is a mark that Tenon wrote to a cgroup (want) and the kernel
// rounded to another one (shown), because it has fewer levels.
type roundedMark struct {
	inode       uint64
	want, shown node.Identity
}

// Switch is the knob of the kernel's global switch of the marks. Tenon turns it
// on when it sets the first mark. No snapshot shows this knob.
var Switch = node.Knob{File: node.FileIdentity}

// Marks reads and writes the marks of a node's cgroups. It is safe for concurrent use.
type Marks struct {
	tree    *cgroup.Tree
	proc    string // where procfs is mounted
	journal *journal.Journal
	set     func(node.Knob, node.Value) error // sets a knob with a journal entry, as a step does
	release func(node.Knob) error

	mu      sync.Mutex
	rounded map[node.CgroupPath]roundedMark
}

// New returns the marks of a node. tree holds the node's cgroups, proc is the
// mount point of procfs, and j is the journal. A mark may need a change of
// another knob, such as the weight. Marks makes this change with the function
// set, so that it has a journal entry of its own, and undoes it with release.
func New(tree *cgroup.Tree, proc string, j *journal.Journal, set func(node.Knob, node.Value) error, release func(node.Knob) error) *Marks {
	return &Marks{tree: tree, proc: proc, journal: j, set: set, release: release, rounded: map[node.CgroupPath]roundedMark{}}
}

// Read reads the mark of a cgroup, or the global switch.
func (m *Marks) Read(k node.Knob) (node.Value, error) {
	vendor := m.tree.Vendor(m.proc)
	if k == Switch {
		on, err := vendor.SwitchedOn()
		if on {
			return node.IdentityHigh, err
		}
		return node.IdentityNone, err
	}
	id, err := vendor.Read(string(k.Cgroup))
	if err != nil {
		return nil, err
	}
	shown := node.Identity(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, is := m.rounded[k.Cgroup]; is && a.shown == shown {
		if inode, err := m.tree.Inode(string(k.Cgroup)); err == nil && inode == a.inode {
			return a.want, nil
		}
	}
	return shown, nil
}

// Write marks a cgroup, or turns the switch on or off. The first mark also turns
// the switch on. After the last mark is removed, LeaveSwitch restores the switch.
func (m *Marks) Write(k node.Knob, v node.Identity) error {
	vendor := m.tree.Vendor(m.proc)
	if k == Switch {
		return vendor.Switch(v != node.IdentityNone)
	}
	if v != node.IdentityNone {
		if err := m.turnOn(vendor); err != nil {
			return err
		}
	}
	if v < node.IdentityNone {
		if err := m.makeIdle(vendor, k.Cgroup); err != nil {
			return err
		}
	}
	if err := vendor.Write(string(k.Cgroup), cgroup.Identity(v)); err != nil {
		return err
	}
	id, err := vendor.Read(string(k.Cgroup))
	if err != nil {
		return err
	}
	return m.remember(k.Cgroup, v, node.Identity(id))
}

// remember stores the mark that Tenon wrote to a cgroup, if the kernel shows
// another one there.
func (m *Marks) remember(p node.CgroupPath, want, shown node.Identity) error {
	inode, err := m.tree.Inode(string(p))
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(m.rounded, p); err == nil && shown != want {
		m.rounded[p] = roundedMark{inode: inode, want: want, shown: shown}
	}
	return err
}

// turnOn turns the global switch on, and journals the change.
func (m *Marks) turnOn(vendor cgroup.Vendor) error {
	on, err := vendor.SwitchedOn()
	if errors.Is(err, cgroup.ErrUnsupported) {
		return nil // there is no switch: marks always act
	}
	if err != nil || on {
		return err
	}
	return m.set(Switch, node.IdentityHigh)
}

// makeIdle makes a cgroup idle before it gets a mark, if the mark would make it
// idle. Otherwise the journal would lack the weight of the cgroup, and a
// release could not restore it.
func (m *Marks) makeIdle(vendor cgroup.Vendor, p node.CgroupPath) error {
	if !vendor.MakesIdle(string(p)) {
		return nil
	}
	err := m.set(node.Knob{Cgroup: p, File: node.FileCPUWeight}, node.CPUWeight{Idle: true})
	if errors.Is(err, cgroup.ErrUnsupported) {
		return nil // without cpu.idle, the mark cannot make a cgroup idle
	}
	return err
}

// HideIdle returns touches without the weights of cgroups that a mark makes
// idle. If a policy released such a weight before the mark, the marked cgroup
// would not be idle any more. After the release of the mark, the weight is in
// the result again. It is then released, too, unless a policy sets it.
func (m *Marks) HideIdle(touches map[node.Knob]journal.Touch) map[node.Knob]journal.Touch {
	shown := touches
	for k, mark := range touches {
		if k.File != node.FileIdentity || mark.Written != node.Value(node.IdentityBE) && mark.Pending != node.Value(node.IdentityBE) {
			continue
		}
		weight := node.Knob{Cgroup: k.Cgroup, File: node.FileCPUWeight}
		t, weighted := touches[weight]
		if !weighted || t.Written != node.Value(node.CPUWeight{Idle: true}) || !m.tree.Vendor(m.proc).MakesIdle(string(k.Cgroup)) {
			continue
		}
		if len(shown) == len(touches) {
			shown = maps.Clone(touches)
		}
		delete(shown, weight)
	}
	return shown
}

// LeaveSwitch restores the switch if no cgroup has a mark of Tenon any more.
func (m *Marks) LeaveSwitch() error {
	s, err := m.journal.State()
	if err != nil {
		return err
	}
	for k := range s.Touches {
		if k.File == node.FileIdentity && k != Switch {
			return nil
		}
	}
	return m.release(Switch)
}

// Unmark removes the best-effort marks from an ending cgroup and all cgroups
// below it, so that they get CPU time. Until these cgroups are gone, snapshots
// show the marks as if they were still set.
func (m *Marks) Unmark(p node.CgroupPath) error {
	s, err := m.journal.State()
	if err != nil {
		return err
	}
	var errs []error
	for k, t := range s.Touches {
		if k.File != node.FileIdentity || k == Switch || !p.Contains(k.Cgroup) || t.Written != node.Value(node.IdentityBE) {
			continue
		}
		if err := m.tree.Vendor(m.proc).Write(string(k.Cgroup), cgroup.Identity(node.IdentityNone)); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, m.remember(k.Cgroup, node.IdentityBE, node.IdentityNone))
	}
	return errors.Join(errs...)
}

// Remark is for a cgroup that did not end after Unmark. Snapshots show the real
// marks of it and of all cgroups below again, so that the next tick writes the
// marks. Remark returns the knobs of these marks.
func (m *Marks) Remark(p node.CgroupPath) []node.Knob {
	m.mu.Lock()
	defer m.mu.Unlock()
	var again []node.Knob
	for q, a := range m.rounded {
		if p.Contains(q) && a.want == node.IdentityBE && a.shown == node.IdentityNone {
			delete(m.rounded, q)
			again = append(again, node.Knob{Cgroup: q, File: node.FileIdentity})
		}
	}
	return again
}

// DropGone forgets the rounded marks of cgroups that do not exist any more.
func (m *Marks) DropGone() {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.rounded, func(p node.CgroupPath, a roundedMark) bool {
		now, err := m.tree.Inode(string(p))
		return err != nil || now != a.inode
	})
}
