// Package vendormark holds the marks with which the kernels of some vendors
// keep best-effort cgroups from delaying others. It also holds the switch that
// such a kernel may have for these marks.
package vendormark

import (
	"errors"
	"maps"
	"sync"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// A roundedMark is a requested mark, together with the mark to which the kernel
// rounded it. The kernel rounds because it has fewer levels.
type roundedMark struct {
	inode       uint64
	want, shown node.Identity
}

// Switch is the knob of the global switch of the marks. No snapshot shows it,
// because it follows from the marks.
var Switch = node.Knob{File: node.FileIdentity}

// Marks are the marks of a node. It is safe for concurrent use.
type Marks struct {
	tree    *cgroup.Tree
	proc    string // where procfs is mounted
	journal *journal.Journal
	set     func(node.Knob, node.Value) error // sets a knob in the same way as a step
	release func(node.Knob) error

	mu      sync.Mutex
	rounded map[node.CgroupPath]roundedMark
}

// New returns the marks of a node. tree has its cgroups, proc is the mount
// point of procfs, and j is its journal. A mark may imply another change, such
// as a weight. Marks makes this change by a function (set), so that the journal
// has an entry of its own for it, and undoes it by another (release).
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

// Write marks a cgroup. The first mark may turn on the switch. When the last
// mark has been removed, LeaveSwitch restores the switch.
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

// remember records the requested mark of a cgroup, and the mark that the kernel
// shows.
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

// makeIdle makes a cgroup idle. The kernel would do this itself when it gets
// the mark. But then the journal would not have the weight that the cgroup had
// before, and a release could not restore it.
func (m *Marks) makeIdle(vendor cgroup.Vendor, p node.CgroupPath) error {
	if !vendor.MakesIdle(string(p)) {
		return nil
	}
	err := m.set(node.Knob{Cgroup: p, File: node.FileCPUWeight}, node.CPUWeight{Idle: true})
	if errors.Is(err, cgroup.ErrUnsupported) {
		return nil // this kernel has no cpu.idle, so the mark has no such effect
	}
	return err
}

// HideIdle returns the entries without the weights of cgroups that a mark has
// made idle. If such a weight were released first, the cgroup would not be idle
// any more although it still has the mark. When the mark has been released, the entries
// contain the weight again. It is then released unless a policy wants it.
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

// LeaveSwitch restores the switch when no mark is left.
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

// Unmark removes the best-effort marks from a cgroup that is ending, and from
// all cgroups below it, so that it gets CPU. As long as the cgroups exist,
// snapshots show the requested marks.
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

// Remark undoes Unmark for a cgroup that did not end, and for all cgroups below
// it. It returns the knobs whose real values differ from what snapshots have
// shown.
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

// DropGone forgets the marks of cgroups that do not exist any more.
func (m *Marks) DropGone() {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.rounded, func(p node.CgroupPath, a roundedMark) bool {
		now, err := m.tree.Inode(string(p))
		return err != nil || now != a.inode
	})
}
