package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/resctrl"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// divides reports whether a knob is one of resctrl.
func divides(k node.Knob) bool {
	return k.ControlGroup != "" || k.File.Category() == node.CategoryResctrl
}

// mounted returns the resctrl file system, and looks for it again if it was not
// found.
func (h *Host) mounted() (*resctrl.FS, error) {
	c := &h.controls
	c.mount.Lock()
	fs := c.fs
	c.mount.Unlock()
	if fs != nil {
		return fs, nil
	}
	return h.findMount()
}

// findMount looks for the resctrl file system: it may have been mounted,
// unmounted, or mounted again with other options.
func (h *Host) findMount() (*resctrl.FS, error) {
	c := &h.controls
	c.mount.Lock()
	defer c.mount.Unlock()
	fs, err := resctrl.Find(h.fs.Proc)
	if err != nil {
		c.fs = nil
		return nil, err
	}
	if c.fs == nil || c.fs.Root != fs.Root || !slices.Equal(c.fs.Options, fs.Options) {
		c.fs = fs // otherwise keep the old one with its lock
	}
	return c.fs, nil
}

// schemataOf reads a line of schemata.
func schemataOf[V node.Value](h *Host) func(node.Knob) (V, error) {
	return func(k node.Knob) (v V, err error) {
		fs, err := h.mounted()
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

// readMembership reads the control groups of the threads in and below a cgroup.
// Without threads it is the default group.
func (h *Host) readMembership(k node.Knob) (node.ControlGroup, error) {
	fs, err := h.mounted()
	if err != nil {
		return node.ControlGroup{}, fmt.Errorf("read %v: %w", k, err)
	}
	threads, err := h.threads(k.Cgroup)
	if err != nil {
		return node.ControlGroup{}, err
	}
	members, err := membersOf(fs)
	if err != nil {
		return node.ControlGroup{}, err
	}
	v, _ := members.of(threads)
	return v, nil
}

// threads lists the threads in and below a cgroup, without those of other
// workloads there.
func (h *Host) threads(p node.CgroupPath) ([]int, error) {
	all, err := h.tree.Threads(string(p))
	if err != nil {
		return nil, err
	}
	children, err := h.tree.Children(string(p))
	if err != nil {
		return nil, err
	}
	for _, name := range children {
		child := p.Join(name)
		if h.controls.isWorkload(child) {
			continue
		}
		below, err := h.threads(child)
		if err != nil && !errors.Is(err, cgroup.ErrGone) {
			return nil, err
		}
		all = append(all, below...)
	}
	return all, nil
}

// members maps the threads outside the default control group to their group.
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

// of returns the control groups of threads; false if there are no threads.
func (m members) of(threads []int) (node.ControlGroup, bool) {
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
func (h *Host) writeMembership(k node.Knob, v node.ControlGroup) error {
	fs, err := h.mounted()
	if err != nil {
		return fmt.Errorf("write %v: %w", k, err)
	}
	groups := v.In()
	if len(groups) != 1 {
		return fmt.Errorf("write %v %q: want one control group", k, v)
	}
	return fs.Settle(groups[0], func() ([]int, error) { return h.threads(k.Cgroup) })
}

func (h *Host) writeMB(k node.Knob, v node.MB) error {
	fs, err := h.mounted()
	if err != nil {
		return fmt.Errorf("write %v: %w", k, err)
	}
	by, err := v.By()
	if err != nil {
		return err
	}
	return fs.SetSchemata(k.ControlGroup, resctrl.MB, schemataLine(by))
}

// writeL3 writes the lines that the mount has: one, or one for code and one
// for data.
func (h *Host) writeL3(k node.Knob, v node.L3) error {
	fs, err := h.mounted()
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

// unmixed returns the value from before Tenon of a knob that reads as v: no
// thread was in a control group that Tenon has made since, or adopted empty.
func (h *Host) unmixed(v node.Value) node.Value {
	if _, threads := v.(node.Threads); threads {
		// A thread that had it before had it from an earlier Tenon, or from its
		// parent.
		return node.ThreadsNormal
	}
	c, is := v.(node.ControlGroup)
	if !is {
		return v
	}
	state, err := h.journal.State()
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
	for _, g := range c.In() {
		if !used[g] {
			before = append(before, g)
		}
	}
	if len(before) == 0 {
		before = []string{node.DefaultControlGroup}
	}
	return node.ControlGroupsOf(before...)
}

// joined reports whether a cgroup's control groups are Tenon's value plus those
// of threads that were moved in since.
func joined(t journal.Touch, now node.Value) bool {
	n, is := now.(node.ControlGroup)
	if !is {
		return false
	}
	ours := map[string]bool{node.DefaultControlGroup: true}
	for _, v := range []node.Value{t.Before, t.Written, t.Pending} {
		if c, is := v.(node.ControlGroup); is {
			for _, g := range c.In() {
				ours[g] = true
			}
		}
	}
	for _, g := range n.In() {
		if !ours[g] {
			return false
		}
	}
	return true
}
