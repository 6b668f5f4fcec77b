package host

import (
	"maps"
	"slices"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// enableControllers enables the controllers that a new cgroup p needs in the
// ancestors of p, and journals each one before. Tree.Make would enable the same
// ones. enableControllers skips cgroups that Tenon made, because their
// controllers go with them, and busy ones (cgroup.Subtree). A controller that the
// kernel refuses stays disabled.
func enableControllers(h *Host, p node.CgroupPath) error {
	state, err := h.journal.State()
	if err != nil {
		return err
	}
	var above []node.CgroupPath
	for p != "" {
		p = p.Parent()
		above = append(above, p)
	}
	for _, q := range slices.Backward(above) {
		if _, made := state.Groups[q]; made {
			continue
		}
		s, err := cgroup.ReadSubtree(h.tree, string(q))
		if err != nil {
			continue // there is no cgroup v2
		}
		if s.Busy {
			continue
		}
		for _, name := range s.Disabled {
			c := journal.ChildController{Cgroup: q, Controller: name}
			if err := recordEnabled(h.journal, c, s); err != nil {
				return err
			}
			if err := cgroup.PassOn(h.tree, string(q), name, true); err == nil {
				continue
			}
			if err := journal.ForgetEnabled(h.journal, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordEnabled journals a controller that is about to be enabled for the
// children of the cgroup s.
func recordEnabled(j *journal.Journal, c journal.ChildController, s cgroup.Subtree) error {
	return journal.RecordEnabled(j, c, journal.Enabling{Inode: s.Inode, Children: slices.Sorted(maps.Values(s.Children))})
}

// A probeJournal journals what the probes of capabilities change for a moment.
type probeJournal struct {
	*journal.Journal
	tree *cgroup.Tree
}

// RecordEnabled journals a controller before it is enabled for the children of
// the root.
func (x probeJournal) RecordEnabled(controller string) error {
	s, err := cgroup.ReadSubtree(x.tree, "")
	if err != nil {
		return err
	}
	return recordEnabled(x.Journal, journal.ChildController{Controller: controller}, s)
}

// ForgetEnabled deletes the entry of a controller.
func (x probeJournal) ForgetEnabled(controller string) error {
	return journal.ForgetEnabled(x.Journal, journal.ChildController{Controller: controller})
}
