package change

import (
	"errors"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
)

// alternative returns the value to try after the kernel refused v with err. It
// returns nil if there is none. On cgroup v2 an empty cpuset means the whole
// set of the parent, but while tasks run in the cgroup, a set cannot become
// empty again. If the set of the parent is written explicitly, that has the
// same effect.
func (c *Knobs) alternative(k node.Knob, v node.Value, err error) node.Value {
	set, isSet := v.(node.CPUs)
	if !isSet || !set.Set.Empty() || !errors.Is(err, syscall.ENOSPC) || c.o.Tree.Version() != 2 {
		return nil
	}
	read := c.o.Tree.EffectiveCPUs
	if k.File == node.FileMems {
		read = c.o.Tree.EffectiveMems
	}
	if set.Set, err = read(string(k.Cgroup.Parent())); err != nil || set.Set.Empty() {
		return nil
	}
	return set
}
