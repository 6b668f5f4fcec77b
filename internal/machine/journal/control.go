package journal

import (
	"fmt"
	"maps"
	"slices"
)

// A MadeControl is a control group of resctrl that Tenon has created.
type MadeControl struct {
	// Inode is the inode number of the group's directory, or 0 if Tenon died
	// while it created the group. A group that is removed and made again has
	// another number.
	Inode uint64
	By    Session
}

// MadeControl records a control group of resctrl. Call it twice: with inode 0
// before Tenon creates the group, and with the group's inode afterwards.
func (j *Journal) MadeControl(group string, inode uint64) error {
	return j.append(func(State) *entry { return &entry{Op: opMadeControl, Control: group, Inode: inode} })
}

// RemovedControl deletes the entry of a control group.
func (j *Journal) RemovedControl(group string) error {
	return j.append(func(s State) *entry {
		if _, made := s.Controls[group]; !made {
			return nil
		}
		return &entry{Op: opRemovedControl, Control: group}
	})
}

// The operations of entries about control groups.
const (
	opMadeControl    = "made resctrl"
	opRemovedControl = "removed resctrl"
)

func (s *State) applyControl(e entry) error {
	if e.Control == "" {
		return fmt.Errorf("%s without a control group", e.Op)
	}
	if e.Op == opRemovedControl {
		delete(s.Controls, e.Control)
		return nil
	}
	if s.Controls == nil {
		s.Controls = map[string]MadeControl{}
	}
	s.Controls[e.Control] = MadeControl{Inode: e.Inode, By: e.By}
	return nil
}

// controlEntries returns the shortest list of entries that lead to s.Controls.
func (s State) controlEntries() []entry {
	var es []entry
	for _, name := range slices.Sorted(maps.Keys(s.Controls)) {
		c := s.Controls[name]
		es = append(es, entry{Op: opMadeControl, Control: name, Inode: c.Inode, By: c.By})
	}
	return es
}
