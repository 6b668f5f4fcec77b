package journal

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// State is the content of the journal after all its entries have been applied.
type State struct {
	Touches   map[node.Knob]Touch
	Groups    map[node.CgroupPath]Session // groups that Tenon created, with the session
	Controls  map[string]MadeControl      // control groups of resctrl that Tenon created
	Processes map[Process]Session         // processes that Tenon started, with the session
	// Enabled holds the controllers that Tenon enabled for the children of cgroups.
	Enabled map[ChildController]Enabling
	// Torn is the number of lines that could not be read, because their writer
	// was killed while it wrote them.
	Torn int
	// Damage says how entries were lost because another program changed the
	// file. It is empty if there is no known loss.
	Damage string
}

// A file holds the facts from the lines about the file itself.
type file struct {
	lines int  // number of lines of the file
	begun bool // the file has its first line
	noted bool // the file has a line about State.Damage
}

// A Touch is the entry of a knob that Tenon has written, or was about to write.
type Touch struct {
	// Inode is the inode number of the cgroup's directory. A cgroup that is
	// removed and made again has another number.
	Inode  uint64
	Before node.Value
	// Written is the last value that Tenon wrote, as the kernel shows it. It is
	// nil if no write was confirmed.
	Written node.Value
	// Pending is the value of a write that began and was not confirmed, or nil
	// if there is no such write.
	Pending node.Value
	// By is the session that first wrote the knob, or a later one that has
	// adopted it.
	By Session
}

// A Process is identified by its pid together with its start time in
// nanoseconds after boot.
type Process struct {
	PID   int   `json:"pid"`
	Start int64 `json:"start"`
}

// The operations of entries.
const (
	opIntend  = "intend"
	opWrote   = "wrote"
	opForget  = "forget"
	opAdopt   = "adopt"
	opRebase  = "rebase"
	opMade    = "made"
	opRemoved = "removed"
	opSpawned = "spawned"
	opReaped  = "reaped"
	opMoved   = "moved"
)

// An entry is one line of the file.
type entry struct {
	Op      string          `json:"op"`
	Knob    *node.Knob      `json:"knob,omitempty"`
	Inode   uint64          `json:"inode,omitempty"`
	Before  *string         `json:"before,omitempty"` // a pointer, because "" is a value (an empty cpuset)
	Value   string          `json:"value,omitempty"`
	Cgroup  node.CgroupPath `json:"cgroup,omitempty"`
	Control string          `json:"resctrl,omitempty"`
	Process *Process        `json:"process,omitempty"`
	Moves   []Move          `json:"moves,omitempty"`

	Controller string   `json:"controller,omitempty"`
	Children   []uint64 `json:"children,omitempty"` // inode numbers

	By Session `json:"by"`
}

func newState() State {
	return State{
		Touches:   map[node.Knob]Touch{},
		Groups:    map[node.CgroupPath]Session{},
		Processes: map[Process]Session{},
	}
}

func (s State) clone() State {
	s.Touches, s.Groups, s.Processes = maps.Clone(s.Touches), maps.Clone(s.Groups), maps.Clone(s.Processes)
	s.Controls, s.Enabled = maps.Clone(s.Controls), maps.Clone(s.Enabled)
	return s
}

// Empty reports whether there is nothing to restore.
func (s State) Empty() bool {
	return len(s.Touches)+len(s.Groups)+len(s.Controls)+len(s.Processes)+len(s.Enabled) == 0
}

// replay applies the complete lines of text, and returns the number of their
// bytes. It does not apply a line without a newline. The writer of this line
// may be about to finish it. If the writer has died, the next append completes
// the line.
func (s *State) replay(text []byte, f *file) int {
	n := 0
	for {
		line, _, complete := bytes.Cut(text[n:], []byte{'\n'})
		if !complete {
			return n
		}
		n += len(line) + 1
		f.lines++
		bare, right := unseal(line)
		if e, err := entryOf(bare); err != nil || !right || s.apply(e, f) != nil {
			s.Torn++
			if (!right || !likeLine(line)) && s.Damage == "" {
				s.Damage = "an entry is not as it was written"
			}
		}
	}
}

func (s *State) apply(e entry, f *file) error {
	switch e.Op {
	case opBegin:
		f.begun = true
	case opDamaged:
		s.Damage, f.noted = e.Value, true
	case opSettled:
		s.Damage, f.noted = "", false
	case opIntend, opWrote, opForget, opAdopt, opRebase:
		if e.Knob == nil {
			return fmt.Errorf("%s without a knob", e.Op)
		}
		return s.applyKnob(e)
	case opMadeControl, opRemovedControl:
		return s.applyControl(e)
	case opEnabled, opDisabled:
		return s.applyController(e)
	case opMoved:
		s.Move(e.Moves)
	case opMade:
		s.Groups[e.Cgroup] = e.By
	case opRemoved:
		delete(s.Groups, e.Cgroup)
		maps.DeleteFunc(s.Touches, func(k node.Knob, _ Touch) bool { return k.Cgroup == e.Cgroup })
	case opSpawned, opReaped:
		if e.Process == nil {
			return fmt.Errorf("%s without a process", e.Op)
		}
		if e.Op == opSpawned {
			s.Processes[*e.Process] = e.By
		} else {
			delete(s.Processes, *e.Process)
		}
	default:
		return fmt.Errorf("unknown operation %q", e.Op)
	}
	return nil
}

func (s *State) applyKnob(e entry) error {
	k := *e.Knob
	t, touched := s.Touches[k]
	switch {
	case e.Op == opForget:
		delete(s.Touches, k)
		return nil
	case e.Op == opAdopt && !touched:
		return fmt.Errorf("%v was adopted without an entry", k)
	case e.Op == opAdopt:
		t.By = e.By
		s.Touches[k] = t
		return nil
	}
	value, err := node.ParseValue(k.File, e.Value)
	if err != nil {
		return err
	}
	switch {
	case e.Op == opRebase && !touched:
		return fmt.Errorf("%v was rebased without an entry", k)
	case e.Op == opRebase:
		t.Before = value
	case e.Op == opWrote && !touched:
		return fmt.Errorf("%v was written without an entry", k)
	case e.Op == opWrote:
		t.Written, t.Pending = value, nil
	case e.Before != nil && touched && t.Inode == e.Inode:
		t.Pending = value // two first entries at the same time: the first one counts
	case e.Before != nil:
		before, err := node.ParseValue(k.File, *e.Before)
		if err != nil {
			return err
		}
		t = Touch{Inode: e.Inode, Before: before, Pending: value, By: e.By}
	case !touched:
		return fmt.Errorf("%v has no value from before", k)
	default:
		t.Pending = value
	}
	s.Touches[k] = t
	return nil
}

// text returns the shortest file content that leads to the state s.
func (s State) text() (ownText, error) {
	es := s.entries()
	all := make([]*entry, len(es))
	for i := range es {
		all[i] = &es[i]
	}
	return textOf(all)
}

// entries returns the shortest list of entries that leads to the state s.
func (s State) entries() []entry {
	es := []entry{{Op: opBegin}}
	if s.Damage != "" {
		es = append(es, entry{Op: opDamaged, Value: s.Damage})
	}
	es = append(es, slices.Concat(s.controlEntries(), s.enabledEntries())...)
	for _, p := range slices.Sorted(maps.Keys(s.Groups)) {
		es = append(es, entry{Op: opMade, Cgroup: p, By: s.Groups[p]})
	}
	knobs := slices.SortedFunc(maps.Keys(s.Touches), node.Knob.Compare)
	for _, k := range knobs {
		t := s.Touches[k]
		before := t.Before.String()
		intend := entry{Op: opIntend, Knob: &k, Inode: t.Inode, Before: &before, By: t.By}
		if t.Written != nil {
			intend.Value = t.Written.String()
			es = append(es, intend, entry{Op: opWrote, Knob: &k, Value: t.Written.String(), By: t.By})
			intend.Before = nil
		}
		if t.Pending != nil {
			intend.Value = t.Pending.String()
			es = append(es, intend)
		}
	}
	processes := slices.SortedFunc(maps.Keys(s.Processes), func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Start, b.Start))
	})
	for _, p := range processes {
		es = append(es, entry{Op: opSpawned, Process: &p, By: s.Processes[p]})
	}
	return es
}

func (s State) mentions(p node.CgroupPath) bool {
	if _, made := s.Groups[p]; made {
		return true
	}
	for k := range s.Touches {
		if k.Cgroup == p {
			return true
		}
	}
	return false
}

// String prints what a restore would do: one line for each knob to restore,
// each group to remove, and each process to end.
func (s State) String() string {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(s.Touches), node.Knob.Compare) {
		t := s.Touches[k]
		fmt.Fprintf(&b, "%v before %q written %q pending %q\n", k, text(t.Before), text(t.Written), text(t.Pending))
	}
	for _, p := range slices.Sorted(maps.Keys(s.Groups)) {
		fmt.Fprintf(&b, "made %s\n", p)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Controls)) {
		fmt.Fprintf(&b, "made resctrl group %s\n", name)
	}
	for _, c := range DeepestFirst(s.Enabled) {
		fmt.Fprintf(&b, "enabled controller %s for the children of %q\n", c.Controller, c.Cgroup)
	}
	fmt.Fprintf(&b, "%d processes\n", len(s.Processes))
	return b.String()
}

func text(v node.Value) string {
	if v == nil {
		return "none"
	}
	return v.String()
}
