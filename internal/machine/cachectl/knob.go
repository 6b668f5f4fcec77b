package cachectl

import (
	"errors"
	"fmt"
	"maps"

	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/kernel/resctrl"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/machine/subtree"
	"tenon.sh/tenon/internal/model/node"
)

// Has reports whether a knob is a knob of resctrl.
func Has(k node.Knob) bool { return k.ControlGroup != "" || k.File.Category() == node.CategoryResctrl }

// Adapters returns the adapters of the knobs of resctrl.
func (c *Groups) Adapters() knob.Table {
	return knob.Table{
		node.FileControlGroup: knob.NewAdapter(c.readMembership, c.writeMembership),
		node.FileL3:           knob.NewAdapter(schemataOf[node.L3](c), c.writeL3),
		node.FileMB:           knob.NewAdapter(schemataOf[node.MB](c), c.writeMB),
	}
}

// schemataOf returns a function that reads one line of schemata as a value.
func schemataOf[V node.Value](c *Groups) func(node.Knob) (V, error) {
	return func(k node.Knob) (v V, err error) {
		fs, err := c.Mounted()
		if err != nil {
			return v, fmt.Errorf("read %v: %w", k, err)
		}
		s, err := fs.Schemata(k.ControlGroup)
		if err != nil {
			return v, err
		}
		if line, known := schemataValue(s, k.File); known {
			return line.(V), nil
		}
		return v, fmt.Errorf("read %v: this machine does not divide %s", k, k.File)
	}
}

// readMembership reads which control groups hold the threads in and below a
// cgroup. If there are no threads, it returns the default group.
func (c *Groups) readMembership(k node.Knob) (node.ControlGroup, error) {
	fs, err := c.Mounted()
	if err != nil {
		return node.ControlGroup{}, fmt.Errorf("read %v: %w", k, err)
	}
	threads, err := c.threads(k.Cgroup)
	if err != nil && !partial.Is(err) {
		return node.ControlGroup{}, err
	}
	members, err := membersOf(fs)
	if err != nil {
		return node.ControlGroup{}, err
	}
	v, _ := members.groupsOf(threads)
	return v, nil
}

// threads lists the threads in and below a cgroup, without those of other
// workloads below it.
func (c *Groups) threads(p node.CgroupPath) ([]int, error) {
	return subtree.ThreadsBut(c.tree, p, func(q node.CgroupPath) bool { return q != p && c.isWorkload(q) })
}

// members maps each thread to its control group. It omits threads of the
// default group.
type members map[int]string

func membersOf(fs *resctrl.FS) (members, error) {
	groups, err := fs.Groups()
	if err != nil {
		return nil, err
	}
	m := members{}
	for _, g := range groups {
		tasks, err := fs.Tasks(g)
		if err != nil && !errors.Is(err, resctrl.ErrGone) {
			return nil, err
		}
		for _, tid := range tasks {
			m[tid] = g
		}
	}
	return m, nil
}

// groupsOf returns the control groups that hold the given threads. It returns
// false if threads is empty.
func (m members) groupsOf(threads []int) (node.ControlGroup, bool) {
	in := map[string]bool{}
	for _, tid := range threads {
		g, moved := m[tid]
		if !moved {
			g = node.DefaultControlGroup
		}
		in[g] = true
	}
	if len(in) == 0 {
		return node.ControlGroupsOf(node.DefaultControlGroup), false
	}
	groups := make([]string, 0, len(in))
	for g := range maps.Keys(in) {
		groups = append(groups, g)
	}
	return node.ControlGroupsOf(groups...), true
}

// writeMembership moves the threads in and below a cgroup into a control group.
func (c *Groups) writeMembership(k node.Knob, v node.ControlGroup) error {
	fs, err := c.Mounted()
	if err != nil {
		return fmt.Errorf("write %v: %w", k, err)
	}
	groups := v.List()
	if len(groups) != 1 {
		return fmt.Errorf("write %v %q: want one control group", k, v)
	}
	return fs.Settle(groups[0], func() ([]int, error) { return c.threads(k.Cgroup) })
}

func (c *Groups) writeMB(k node.Knob, v node.MB) error {
	fs, err := c.Mounted()
	if err != nil {
		return fmt.Errorf("write %v: %w", k, err)
	}
	by, err := v.Bandwidths()
	if err != nil {
		return err
	}
	return fs.SetSchemata(k.ControlGroup, resctrl.MB, schemataLine(by))
}

// writeL3 writes one line or, if resctrl is mounted with cdp, one line for code
// and one for data.
func (c *Groups) writeL3(k node.Knob, v node.L3) error {
	fs, err := c.Mounted()
	if err != nil {
		return fmt.Errorf("write %v: %w", k, err)
	}
	code, data, err := v.Parts()
	if err != nil {
		return err
	}
	now, err := fs.Schemata(k.ControlGroup)
	if err != nil {
		return err
	}
	if _, apart := now[resctrl.L3Code]; apart {
		return errors.Join(fs.SetSchemata(k.ControlGroup, resctrl.L3Code, schemataLine(code)), fs.SetSchemata(k.ControlGroup, resctrl.L3Data, schemataLine(data)))
	}
	if v.Apart() {
		return fmt.Errorf("write %v %q: code and data are not divided apart here", k, v)
	}
	return fs.SetSchemata(k.ControlGroup, resctrl.L3, schemataLine(code))
}

func schemataLine(by map[node.CacheID]uint64) map[int]uint64 {
	line := make(map[int]uint64, len(by))
	for id, n := range by {
		line[int(id)] = n
	}
	return line
}

// schemataValue returns a line of schemata as the value of a knob.
func schemataValue(s resctrl.Schemata, f node.File) (node.Value, bool) {
	by := func(resource string) map[node.CacheID]uint64 {
		m := make(map[node.CacheID]uint64, len(s[resource]))
		for id, n := range s[resource] {
			m[node.CacheID(id)] = n
		}
		return m
	}
	switch {
	case f == node.FileMB && len(s[resctrl.MB]) > 0:
		return node.MBOf(by(resctrl.MB)), true
	case f == node.FileL3 && len(s[resctrl.L3]) > 0:
		return node.L3Of(by(resctrl.L3)), true
	case f == node.FileL3 && len(s[resctrl.L3Code]) > 0:
		code, data := by(resctrl.L3Code), by(resctrl.L3Data)
		if maps.Equal(code, data) {
			return node.L3Of(code), true
		}
		return node.L3OfParts(code, data), true
	}
	return nil, false
}

// OriginalValue returns the value that a knob had before Tenon. v is its
// present value. Before Tenon, no thread was in the control groups that Tenon
// made or adopted, so OriginalValue removes them from v.
func (c *Groups) OriginalValue(v node.Value) node.Value {
	m, is := v.(node.ControlGroup)
	if !is {
		return v
	}
	state, err := c.journal.State()
	if err != nil {
		return v
	}
	used := map[string]bool{}
	for g := range state.Controls {
		used[g] = true
	}
	for k := range state.Touches {
		used[k.ControlGroup] = true
	}
	var before []string
	for _, g := range m.List() {
		if !used[g] {
			before = append(before, g)
		}
	}
	if len(before) == 0 {
		before = []string{node.DefaultControlGroup}
	}
	return node.ControlGroupsOf(before...)
}

// IsOurs reports whether a value contains only control groups that Tenon wrote
// or that the cgroup had before. The default group is also allowed, because
// threads that moved into the cgroup may still be in it.
func IsOurs(t journal.Touch, now node.Value) bool {
	n, is := now.(node.ControlGroup)
	if !is {
		return false
	}
	ours := map[string]bool{node.DefaultControlGroup: true}
	for _, v := range []node.Value{t.Before, t.Written, t.Pending} {
		if m, is := v.(node.ControlGroup); is {
			for _, g := range m.List() {
				ours[g] = true
			}
		}
	}
	for _, g := range n.List() {
		if !ours[g] {
			return false
		}
	}
	return true
}
