package change

import (
	"errors"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
)

// alternative returns the value to try after the kernel refused v with err, or
// nil if there is none. On cgroup v2 an empty cpuset means the set of the
// parent. But while a cgroup has tasks, its set cannot become empty again. The
// alternative is to write the set of the parent explicitly, which has the same
// effect.
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
