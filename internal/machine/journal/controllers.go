package journal

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/model/node"
)

// A ChildController is a controller of cgroup v2, such as "memory", that the
// children of a cgroup have or may have (cgroup.subtree_control of the cgroup).
type ChildController struct {
	Cgroup     node.CgroupPath
	Controller string
}

// An Enabling is the entry of a ChildController that Tenon has enabled.
type Enabling struct {
	// Inode is the inode number of the cgroup's directory.
	Inode uint64
	// Children holds the inode numbers of the children that the cgroup had
	// before. Later children may need the controller without a setting of it.
	Children []uint64
	By       Session
}

// RecordEnabled records a controller that Tenon is about to enable. Call it
// before the write. The session of the entry is that of j.
func RecordEnabled(j *Journal, c ChildController, e Enabling) error {
	return j.append(func(State) *entry {
		return &entry{Op: opEnabled, Cgroup: c.Cgroup, Controller: c.Controller, Inode: e.Inode, Children: e.Children}
	})
}

// ForgetEnabled deletes the entry of a controller, because it is disabled again,
// or because another program needs it.
func ForgetEnabled(j *Journal, c ChildController) error {
	return j.append(func(s State) *entry {
		if _, enabled := s.Enabled[c]; !enabled {
			return nil
		}
		return &entry{Op: opDisabled, Cgroup: c.Cgroup, Controller: c.Controller}
	})
}

// The operations of entries about controllers.
const (
	opEnabled  = "enabled"
	opDisabled = "disabled"
)

func (s *State) applyController(e entry) error {
	c := ChildController{e.Cgroup, e.Controller}
	if c.Controller == "" {
		return fmt.Errorf("%s without a controller", e.Op)
	}
	if e.Op == opDisabled {
		delete(s.Enabled, c)
		return nil
	}
	if s.Enabled == nil {
		s.Enabled = map[ChildController]Enabling{}
	}
	s.Enabled[c] = Enabling{Inode: e.Inode, Children: e.Children, By: e.By}
	return nil
}

// enabledEntries returns the shortest list of entries that lead to s.Enabled.
func (s State) enabledEntries() []entry {
	var es []entry
	for _, c := range DeepestFirst(s.Enabled) {
		e := s.Enabled[c]
		es = append(es, entry{Op: opEnabled, Cgroup: c.Cgroup, Controller: c.Controller, Inode: e.Inode, Children: e.Children, By: e.By})
	}
	return es
}

// DeepestFirst lists controllers in the order in which they can be disabled. The
// kernel disables a controller only if no child passes it on.
func DeepestFirst(enabled map[ChildController]Enabling) []ChildController {
	return slices.SortedFunc(maps.Keys(enabled), func(a, b ChildController) int {
		return cmp.Or(cmp.Compare(b.Cgroup.Depth(), a.Cgroup.Depth()), cmp.Compare(a.Cgroup, b.Cgroup), cmp.Compare(a.Controller, b.Controller))
	})
}
