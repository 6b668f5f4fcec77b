package journal

import (
	"maps"

	"tenon.sh/tenon/internal/model/node"
)

// A Move is a cgroup that another program has renamed (only cgroup v1 allows this).
// The directory keeps its inode, its processes and the values of its knobs.
type Move struct {
	From  node.CgroupPath `json:"from"`
	To    node.CgroupPath `json:"to"`
	Inode uint64          `json:"inode"`
}

// Moved records that cgroups were renamed, and gives the entries of their knobs
// the new names. It makes all renames at the same time, so that two cgroups can
// exchange their names.
func (j *Journal) Moved(moves []Move) error {
	return j.append(func(State) *entry {
		if len(moves) == 0 {
			return nil
		}
		return &entry{Op: opMoved, Moves: moves}
	})
}

// Move gives the entries of renamed cgroups their new names. It drops the
// entries of removed cgroups that had one of these names before.
func (s *State) Move(moves []Move) {
	from := make(map[node.CgroupPath]Move, len(moves))
	for _, m := range moves {
		from[m.From] = m
	}
	touches, groups := map[node.Knob]Touch{}, map[node.CgroupPath]Session{}
	for k, t := range s.Touches {
		if m, moves := from[k.Cgroup]; moves && t.Inode == m.Inode {
			delete(s.Touches, k)
			k.Cgroup = m.To
			touches[k] = t
		}
	}
	for p, by := range s.Groups {
		if m, moves := from[p]; moves {
			delete(s.Groups, p)
			groups[m.To] = by
		}
	}
	maps.Copy(s.Touches, touches)
	maps.Copy(s.Groups, groups)
}
