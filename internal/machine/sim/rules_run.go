package sim

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// The names of rules that functions of this file look up.
const (
	frozenShows   = "a frozen group shows that it is frozen"
	frozenBelow   = "a child of a frozen group is frozen with it"
	emptyShows    = "an empty group shows that it is empty"
	v1FrozenLives = "a frozen task does not die before it is thawed"
	v2FrozenDies  = "a frozen task dies of a signal that ends it"
	killsAll      = "killing a group ends all in it and below it"
)

func runRules() []rule {
	flag := func(allowed ...string) func(op) syscall.Errno {
		return func(o op) syscall.Errno {
			if slices.Contains(allowed, o.text) {
				return 0
			}
			if _, err := strconv.Atoi(o.text); err != nil {
				return syscall.EINVAL
			}
			return syscall.ERANGE
		}
	}
	return []rule{
		{name: "freeze is 0 or 1", version: 2, operation: "write", files: "cgroup.freeze", refuse: flag("0", "1")},
		{name: "kill is 1", version: 2, operation: "write", files: "cgroup.kill", refuse: flag("1")},
		{
			name: "the freezer state is FROZEN or THAWED", version: 1, operation: "write", files: "freezer.state",
			refuse: func(o op) syscall.Errno {
				return refuseIf(o.text != "FROZEN" && o.text != "THAWED", syscall.EINVAL)
			},
		},
		{name: frozenShows},
		{name: frozenBelow},
		{name: emptyShows, version: 2},
		{name: v1FrozenLives, version: 1},
		{name: v2FrozenDies, version: 2},
		{
			name: killsAll, version: 2, files: "cgroup.kill",
			settle: func(o op) string {
				maps.DeleteFunc(o.n.tasks, func(_ int, t *task) bool { return o.path.Contains(t.at) })
				return o.text
			},
		},
	}
}

func (n *Node) obeys(name string) bool {
	return slices.ContainsFunc(n.rules, func(r rule) bool { return r.name == name })
}

// frozenItself reports whether the group's own file requests a freeze, whatever
// the ancestors do.
func (n *Node) frozenItself(p node.CgroupPath) bool {
	g := n.groups[p]
	return g != nil && (g.files["cgroup.freeze"] == "1" || g.files["freezer.state"] == "FROZEN")
}

// isFrozen reports whether a group or one of its ancestors is frozen.
func (n *Node) isFrozen(p node.CgroupPath) bool {
	return n.frozenItself(p) || p != "" && n.obeys(frozenBelow) && n.isFrozen(p.Parent())
}

// showRun returns the content of a file that shows whether a group is frozen or
// has tasks. For other files, it returns false.
func (n *Node) showRun(p node.CgroupPath, file string) (string, bool) {
	digit := map[bool]string{true: "1", false: "0"}
	frozen := n.isFrozen(p) && n.obeys(frozenShows)
	switch file {
	case "cgroup.events":
		lives := n.tasksIn(p, true) > 0 || !n.obeys(emptyShows)
		return "populated " + digit[lives] + "\nfrozen " + digit[frozen], true
	case "freezer.state":
		return map[bool]string{true: "FROZEN", false: "THAWED"}[frozen], true
	case "freezer.self_freezing":
		return digit[n.frozenItself(p)], true
	case "freezer.parent_freezing":
		return digit[p != "" && n.isFrozen(p.Parent())], true
	}
	return "", false
}

// Signal sends a fatal signal to a task. A frozen task may die only after the thaw.
func (n *Node) Signal(pid int, _ syscall.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tasks[pid] == nil {
		return fmt.Errorf("signal %d: %w", pid, errNoTask)
	}
	n.signal(pid)
	return nil
}

// AtOnce returns true, because each call has its full effect before it returns.
func (n *Node) AtOnce() bool { return true }

// Alive reports whether a task still exists.
func (n *Node) Alive(pid int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tasks[pid] != nil
}

func (n *Node) signal(pid int) {
	t := n.tasks[pid]
	if t.dying = true; n.isFrozen(t.at) && (n.obeys(v1FrozenLives) || n.version == 2 && !n.obeys(v2FrozenDies)) {
		return
	}
	delete(n.tasks, pid)
}

// bury ends each task that has a pending fatal signal and is not frozen any more.
func (n *Node) bury() {
	maps.DeleteFunc(n.tasks, func(_ int, t *task) bool { return t.dying && !n.isFrozen(t.at) })
}

// readRun returns the run state of a workload's group, as snapshots show it.
func (n *Node) readRun(p node.CgroupPath) node.Run {
	switch {
	case n.frozenItself(p):
		return node.Frozen
	case n.tasksIn(p, true) == 0:
		return node.Ended
	}
	return node.Running
}

// runFiles returns the writes that freeze or thaw a group.
func (n *Node) runFiles(_ node.Knob, v node.Run) ([]knob.Writing, error) {
	switch {
	case v.EndsProcesses():
		return nil, errors.New("no file ends a group")
	case n.version == 1:
		return []knob.Writing{{File: "freezer.state", Text: map[bool]string{true: "FROZEN", false: "THAWED"}[v == node.Frozen]}}, nil
	}
	return []knob.Writing{{File: "cgroup.freeze", Text: map[bool]string{true: "1", false: "0"}[v == node.Frozen]}}, nil
}

// end sends SIGTERM to the tasks of a group, or kills them. If a step has
// frozen the group, end first thaws it.
func (n *Node) end(k node.Knob, v node.Run) error {
	if n.groups[k.Cgroup] == nil {
		return &fs.PathError{Op: "end", Path: string(k.Cgroup), Err: syscall.ENOENT}
	}
	_, ours := n.before[k]
	if ours || v == node.Ended && n.version == 1 {
		if err := n.knobs.Write(k, node.Running); err != nil {
			return err
		}
	}
	delete(n.before, k)
	if v == node.Ended && n.version == 2 {
		return n.write(k.Cgroup, "cgroup.kill", "1")
	}
	for pid, t := range n.tasks {
		if k.Cgroup.Contains(t.at) {
			n.signal(pid)
		}
	}
	return nil
}

// mayThaw reports whether a write to the file may thaw tasks of a group.
func mayThaw(file string) bool { return strings.HasPrefix(file, "freezer.") || file == "cgroup.freeze" }
