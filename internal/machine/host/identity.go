package host

import (
	"errors"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// An asked is a requested mark that the kernel rounds to another, because it
// has fewer levels.
type asked struct {
	inode       uint64
	want, shown node.Identity
}

// readIdentity reads the mark of a cgroup, or the global switch.
func (h *Host) readIdentity(k node.Knob) (node.Value, error) {
	vendor := h.tree.Vendor(h.fs.Proc)
	if k == switchKnob {
		on, err := vendor.Switched()
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
	i := &h.isolation
	i.mu.Lock()
	defer i.mu.Unlock()
	if a, is := i.asked[k.Cgroup]; is && a.shown == shown {
		if inode, err := h.tree.Inode(string(k.Cgroup)); err == nil && inode == a.inode {
			return a.want, nil
		}
	}
	return shown, nil
}

// writeIdentity marks a cgroup. The first mark may turn on the switch; after
// the removal of the last mark leaveSwitch restores the switch.
func (h *Host) writeIdentity(k node.Knob, v node.Identity) error {
	vendor := h.tree.Vendor(h.fs.Proc)
	if k == switchKnob {
		return vendor.Switch(v != node.IdentityNone)
	}
	if v != node.IdentityNone {
		if err := h.turnOn(vendor); err != nil {
			return err
		}
	}
	if v < node.IdentityNone {
		if err := h.makeIdle(vendor, k.Cgroup); err != nil {
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
	return h.remember(k.Cgroup, v, node.Identity(id))
}

// remember records the requested mark of a cgroup, and the mark that the kernel
// shows.
func (h *Host) remember(p node.CgroupPath, want, shown node.Identity) error {
	inode, err := h.tree.Inode(string(p))
	i := &h.isolation
	i.mu.Lock()
	defer i.mu.Unlock()
	if delete(i.asked, p); err == nil && shown != want {
		i.asked[p] = asked{inode: inode, want: want, shown: shown}
	}
	return err
}

// turnOn turns the global switch on, and journals the change.
func (h *Host) turnOn(vendor cgroup.Vendor) error {
	on, err := vendor.Switched()
	if errors.Is(err, cgroup.ErrUnsupported) {
		return nil // there is no switch: marks always act
	}
	if err != nil || on {
		return err
	}
	return h.set(switchKnob, node.IdentityHigh)
}

// makeIdle makes a cgroup idle before its mark does so implicitly: as a
// journaled change, so that a release restores its weight.
func (h *Host) makeIdle(vendor cgroup.Vendor, p node.CgroupPath) error {
	if !vendor.Idles(string(p)) {
		return nil
	}
	err := h.set(node.Knob{Cgroup: p, File: node.FileCPUWeight}, node.CPUWeight{Idle: true})
	if errors.Is(err, cgroup.ErrUnsupported) {
		return nil // this kernel has no cpu.idle, so the mark has no such effect
	}
	return err
}

// hideIdle leaves out the weights of cgroups that a mark has made idle. A
// release of the weight before that of the mark would undo half of the mark.
// After the mark is released, the weight is shown, and released unless wanted.
func (h *Host) hideIdle(touches map[node.Knob]journal.Touch) {
	for k, t := range touches {
		mark, marked := touches[node.Knob{Cgroup: k.Cgroup, File: node.FileIdentity}]
		if k.File != node.FileCPUWeight || !marked || t.Written != node.Value(node.CPUWeight{Idle: true}) {
			continue
		}
		below := mark.Written == node.Value(node.IdentityBE) || mark.Pending == node.Value(node.IdentityBE)
		if below && h.tree.Vendor(h.fs.Proc).Idles(string(k.Cgroup)) {
			delete(touches, k)
		}
	}
}

// leaveSwitch restores the switch once no mark is left.
func (h *Host) leaveSwitch() error {
	s, err := h.journal.State()
	if err != nil {
		return err
	}
	for k := range s.Touches {
		if k.File == node.FileIdentity && k != switchKnob {
			return nil
		}
	}
	return h.release(switchKnob)
}

// unmark removes the best-effort marks from a dying cgroup and from all below
// it, so that it gets CPU. The knobs show the requested marks until the cgroups
// are gone.
func (h *Host) unmark(p node.CgroupPath) error {
	s, err := h.journal.State()
	if err != nil {
		return err
	}
	var errs []error
	for k, t := range s.Touches {
		if k.File != node.FileIdentity || k == switchKnob || !p.Contains(k.Cgroup) || t.Written != node.Value(node.IdentityBE) {
			continue
		}
		if err := h.tree.Vendor(h.fs.Proc).Write(string(k.Cgroup), cgroup.Identity(node.IdentityNone)); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, h.remember(k.Cgroup, node.IdentityBE, node.IdentityNone))
	}
	return errors.Join(errs...)
}
