package host

import (
	"errors"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
)

// nextTo returns what comes next to the value v, which the kernel refused with
// err: on cgroup v2 a set of CPUs or memory nodes that was empty, all of the
// parent's, cannot be emptied again while tasks run in the group. The whole
// set of the parent, by name, lets them run where they could before. It is nil
// where nothing comes next to v.
func (h *Host) nextTo(k node.Knob, v node.Value, err error) node.Value {
	set, isSet := v.(node.CPUs)
	if !isSet || !set.Set.Empty() || !errors.Is(err, syscall.ENOSPC) || h.tree.Version() != 2 {
		return nil
	}
	read := h.tree.EffectiveCPUs
	if k.File == node.FileMems {
		read = h.tree.EffectiveMems
	}
	if set.Set, err = read(string(k.Cgroup.Parent())); err != nil || set.Set.Empty() {
		return nil
	}
	return set
}
