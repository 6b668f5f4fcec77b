package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// fillControls adds the resources and the knobs of resctrl to a snapshot.
func (n *Node) fillControls(s *node.Snapshot) {
	d := n.divided
	if d == nil {
		s.Resctrl.Missing = "this machine has no resctrl"
		return
	}
	s.Resctrl = node.Resctrl{Groups: d.Groups, L3: d.Ways, MBDomains: d.MBDomains, MBPerCore: d.MBPerCore}
	s.Knobs.Kernel.MB = d.MB
	for name, c := range d.groups {
		switch {
		case name == node.DefaultControlGroup:
		case !node.IsControlGroup(name):
			s.Resctrl.Others++
		case n.isForeign(name):
			s.Resctrl.Others++
			s.Resctrl.Taken = append(s.Resctrl.Taken, name)
		default:
			for _, f := range []node.File{node.FileL3, node.FileMB} {
				if v := c.value(f); v != nil {
					s.Knobs.Now[node.Knob{ControlGroup: name, File: f}] = v
				}
			}
		}
	}
	slices.Sort(s.Resctrl.Taken)
	for _, w := range s.Workloads {
		if v, any := n.membership(w.Cgroup); any {
			s.Knobs.Now[node.Knob{Cgroup: w.Cgroup, File: node.FileControlGroup}] = v
		}
	}
	for k := range n.before {
		if k.File == node.FileControlGroup && n.groups[k.Cgroup] != nil {
			s.Knobs.Now[k], _ = n.membership(k.Cgroup)
		}
	}
}

// value returns the value of a knob of a control group. It returns nil if the
// machine lacks the knob.
func (c *control) value(f node.File) node.Value {
	switch {
	case f == node.FileL3 && len(c.l3) > 0:
		return node.L3Of(c.l3)
	case f == node.FileMB && len(c.mb) > 0:
		return node.MBOf(c.mb)
	}
	return nil
}

// isForeign reports whether another component uses the control group.
func (n *Node) isForeign(name string) bool {
	if n.divided.groups[name].mine {
		return false
	}
	for k := range n.before {
		if k.ControlGroup == name {
			return false
		}
	}
	return n.tasksOf(name) != ""
}

// membership returns the control groups of the tasks in and below a cgroup. It
// returns false if there are no tasks.
func (n *Node) membership(p node.CgroupPath) (node.ControlGroup, bool) {
	var in []string
	for _, t := range n.tasks {
		if p.Contains(t.at) {
			in = append(in, t.groupName())
		}
	}
	if len(in) == 0 {
		return node.ControlGroupsOf(node.DefaultControlGroup), false
	}
	return node.ControlGroupsOf(in...), true
}

// groupName returns the name of a task's control group.
func (t *task) groupName() string { return cmp.Or(t.control, node.DefaultControlGroup) }

// applyControl performs one step on a knob of resctrl.
func (n *Node) applyControl(s plan.Step) error {
	err := error(syscall.ENOENT)
	if n.divided != nil {
		err = n.ageControlGroups(s)
	}
	if err != nil {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	if s.Release {
		delete(n.before, s.Knob)
		n.leaveControl(s.Knob.ControlGroup)
	}
	return nil
}

func (n *Node) ageControlGroups(s plan.Step) error {
	k := s.Knob
	if k.File == node.FileControlGroup {
		return n.join(s)
	}
	name := k.ControlGroup
	switch c := n.divided.groups[name]; {
	case name == node.DefaultControlGroup, c != nil && n.isForeign(name):
		return fmt.Errorf("control group %s is not Tenon's", name)
	case c == nil && s.Release:
		return nil // the group and its knobs are gone
	case c == nil:
		if err := n.makeControl(name); err != nil {
			return err
		}
		n.divided.groups[name].mine = true
	}
	was := n.divided.groups[name].clone()
	if err := n.knobs.Write(k, s.To); err != nil {
		n.leaveControl(name)
		return err
	}
	if _, touched := n.before[k]; !touched && !s.Release {
		n.before[k] = was.value(k.File)
	}
	return nil
}

// leaveControl removes a control group that Apply made, if Tenon has released
// all its knobs.
func (n *Node) leaveControl(name string) {
	c := n.divided.groups[name]
	if c == nil || !c.mine {
		return
	}
	for k := range n.before {
		if k.ControlGroup == name {
			return
		}
	}
	n.removeControl(name)
}

// join performs a step that moves the tasks of a cgroup into a control group.
func (n *Node) join(s plan.Step) error {
	before := node.ControlGroupsOf(node.DefaultControlGroup)
	if v, any := n.membership(s.Knob.Cgroup); any && !slices.ContainsFunc(v.List(), node.IsControlGroup) {
		before = v
	}
	err := n.knobs.Write(s.Knob, s.To)
	if _, touched := n.before[s.Knob]; !touched && !s.Release && !errors.Is(err, syscall.ENOENT) {
		n.before[s.Knob] = before
	}
	return err
}

func (n *Node) readMembership(k node.Knob) (node.ControlGroup, error) {
	if n.divided == nil {
		return node.ControlGroup{}, fmt.Errorf("read %v: %w", k, syscall.ENOENT)
	}
	v, _ := n.membership(k.Cgroup)
	return v, nil
}

func (n *Node) moveTasks(k node.Knob, to node.ControlGroup) error {
	if strings.Contains(to.Groups, ",") || n.divided.groups[to.Groups] == nil {
		return fmt.Errorf("no control group %q: %w", to, syscall.ENOENT)
	}
	for pid, t := range n.tasks {
		if !k.Cgroup.Contains(t.at) {
			continue
		}
		if err := n.writeControl(to.Groups, "tasks", fmt.Sprintln(pid)); err != nil {
			return err
		}
	}
	return nil
}

// controlValue reads a knob of a control group.
func controlValue[V node.Value](n *Node) func(node.Knob) (V, error) {
	return func(k node.Knob) (v V, err error) {
		if d := n.divided; d != nil && d.groups[k.ControlGroup] != nil {
			if v, has := d.groups[k.ControlGroup].value(k.File).(V); has {
				return v, nil
			}
		}
		return v, fmt.Errorf("read %v: %w", k, syscall.ENOENT)
	}
}

// writeSchemata writes a line of the schemata of a control group.
func writeSchemata[V node.Value](n *Node) func(node.Knob, V) error {
	return func(k node.Knob, v V) error {
		return n.writeControl(k.ControlGroup, "schemata", fmt.Sprintf("%s:%v\n", k.File, v))
	}
}
