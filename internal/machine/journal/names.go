package journal

import (
	"encoding/json"
	"slices"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/valuetext"
)

// line returns the JSON form of an entry, even if a cgroup in it has a name
// that is not UTF-8.
func (e entry) line() ([]byte, error) {
	return json.Marshal(e.renamePaths(valuetext.QuotePath[node.CgroupPath]))
}

// entryOf parses the JSON form of an entry.
func entryOf(line []byte) (entry, error) {
	var e entry
	err := json.Unmarshal(line, &e)
	return e.renamePaths(valuetext.UnquotePath[node.CgroupPath]), err
}

// renamePaths returns the entry with f applied to each of its paths.
func (e entry) renamePaths(f func(node.CgroupPath) node.CgroupPath) entry {
	e.Cgroup = f(e.Cgroup)
	if e.Knob != nil && f(e.Knob.Cgroup) != e.Knob.Cgroup {
		k := *e.Knob
		k.Cgroup = f(k.Cgroup)
		e.Knob = &k
	}
	if len(e.Moves) > 0 {
		e.Moves = slices.Clone(e.Moves)
		for i, m := range e.Moves {
			e.Moves[i].From, e.Moves[i].To = f(m.From), f(m.To)
		}
	}
	return e
}
