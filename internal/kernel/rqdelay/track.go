package rqdelay

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrFull says that the table of cgroups is full. It has as many entries as the
// constant Groups.
var ErrFull = errors.New("the table of cgroups is full")

// Groups is the maximum number of cgroups that can be tracked.
const Groups = int(delayTenonLimitTENON_GROUPS)

// tracked holds the cgroups that are tracked, and the class of each slot.
type tracked struct {
	groups map[uint64]owner
	slots  map[Slot]Class
	size   map[Slot]int // number of cgroups of each slot
}

type owner struct {
	slot  Slot
	class Class
}

func newTracked() tracked {
	return tracked{groups: map[uint64]owner{}, slots: map[Slot]Class{}, size: map[Slot]int{}}
}

// check returns an error if o is out of range, or if its slot would get a second class.
func (t tracked) check(id uint64, o owner) error {
	if o.slot < First {
		return fmt.Errorf("want a slot from %d to %d", uint8(First), uint8(Last))
	}
	if o.class < Other || o.class > BE {
		return fmt.Errorf("want one of %v %v %v %v", Other, System, LS, BE)
	}
	others := t.size[o.slot]
	if t.groups[id].slot == o.slot {
		others--
	}
	if class := t.slots[o.slot]; others > 0 && class != o.class {
		return fmt.Errorf("the slot is used for class %v", class)
	}
	return nil
}

func (t tracked) add(id uint64, o owner) {
	t.remove(id)
	t.groups[id] = o
	t.slots[o.slot] = o.class
	t.size[o.slot]++
}

func (t tracked) remove(id uint64) {
	o, known := t.groups[id]
	if !known {
		return
	}
	delete(t.groups, id)
	if t.size[o.slot]--; t.size[o.slot] == 0 {
		delete(t.size, o.slot)
		delete(t.slots, o.slot)
	}
}

// hasLS reports whether any slot is LS.
func (t tracked) hasLS() bool {
	for _, class := range t.slots {
		if class == LS {
			return true
		}
	}
	return false
}

// Track assigns a cgroup to a slot, with all cgroups below it except those that
// are tracked themselves. The id is the inode number of the cgroup's directory
// in the hierarchy of the cpu controller. A later call for the same cgroup
// replaces an earlier one. Several cgroups may share a slot if they have the
// same class.
//
// A thread that runs now counts for the slot after its next context switch.
// When a slot gets another workload, its counters are not reset, so use
// differences (Reading.Since). After Forget, take a Reading before the slot
// gets another workload.
//
// If Groups cgroups are tracked already, Track returns ErrFull. The threads of
// the cgroup then count for the next tracked cgroup above it, or as Untracked.
func (p *Probe) Track(slot Slot, cgroupID uint64, class Class) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := owner{slot, class}
	if err := p.track(cgroupID, o); err != nil {
		return fmt.Errorf("track cgroup %d as %v, %v: %w", cgroupID, slot, class, err)
	}
	return nil
}

func (p *Probe) track(id uint64, o owner) error {
	if p.closed {
		return ErrClosed
	}
	if err := p.tracked.check(id, o); err != nil {
		return err
	}
	if p.tracked.groups[id] == o {
		return nil
	}
	value := delayTenonGroup{Slot: delayTenonSlot(o.slot), Class: delayTenonClass(o.class)}
	if err := p.kernel.Groups.Put(id, value); errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("%w: it has %d entries", ErrFull, Groups)
	} else if err != nil {
		return fmt.Errorf("add to the table of %d groups: %w", p.kernel.Groups.MaxEntries(), err)
	}
	if err := p.blame(o.slot, o.class == BE); err != nil {
		return fmt.Errorf("mark the slot in the table of alarms: %w", err)
	}
	p.tracked.add(id, o)
	p.sensed[o.slot] = p.sensed[o.slot] || o.class == LS
	return p.changed()
}

// Forget removes a cgroup from its slot. It returns nil if the cgroup is not
// tracked.
func (p *Probe) Forget(cgroupID uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.forget(cgroupID); err != nil {
		return fmt.Errorf("forget cgroup %d: %w", cgroupID, err)
	}
	return nil
}

func (p *Probe) forget(id uint64) error {
	if p.closed {
		return ErrClosed
	}
	if _, known := p.tracked.groups[id]; !known {
		return nil
	}
	if err := p.kernel.Groups.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove from the table of groups: %w", err)
	}
	p.tracked.remove(id)
	return p.changed()
}

// changed makes each CPU look up the cgroup of its thread again. It attaches
// the program if there is an LS slot, and otherwise detaches it.
func (p *Probe) changed() error {
	p.generation++
	if err := p.kernel.Generation.Set(p.generation); err != nil {
		return fmt.Errorf("begin generation %d: %w", p.generation, err)
	}
	switch {
	case p.tracked.hasLS() && p.hook == nil:
		return p.attach()
	case !p.tracked.hasLS():
		return p.detach()
	}
	return nil
}
