package journal

import (
	"fmt"
	"maps"
	"slices"
)

// A MadeControl is a control group of resctrl that Tenon made.
type MadeControl struct {
	// Inode is the inode number of its folder; 0 if Tenon died while it made
	// the group. A group that was removed and made again under the same name is
	// another group.
	Inode uint64
	By    Session
}

// MadeControl records a control group of resctrl: with inode 0 before it is
// made, and then with its own.
func (j *Journal) MadeControl(group string, inode uint64) error {
	return j.append(func(State) *entry { return &entry{Op: opMadeControl, Control: group, Inode: inode} })
}

// RemovedControl drops a control group that Tenon made.
func (j *Journal) RemovedControl(group string) error {
	return j.append(func(s State) *entry {
		if _, made := s.Controls[group]; !made {
			return nil
		}
		return &entry{Op: opRemovedControl, Control: group}
	})
}

// The operations on control groups.
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

// controlEntries are the fewest lines that replay to s.Controls.
func (s State) controlEntries() []entry {
	var es []entry
	for _, name := range slices.Sorted(maps.Keys(s.Controls)) {
		c := s.Controls[name]
		es = append(es, entry{Op: opMadeControl, Control: name, Inode: c.Inode, By: c.By})
	}
	return es
}
