package sim

import (
	"slices"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A rule imitates one fact about the kernel. The fact has the same name in the
// conformance suite. If a test removes a rule, the node accepts the operation.
type rule struct {
	name    string
	version int // 1, 2, or 0 for both
	// operation is the kind of operation that the rule is about: write, attach,
	// remove or fork.
	operation string
	// files lists the files that the rule concerns, separated by spaces. "" means all.
	files string
	// refuse returns the error with which the kernel refuses the operation, or
	// 0 if the kernel accepts it.
	refuse func(op) syscall.Errno
	// settle makes all other changes that a write causes. It returns the text
	// that the written file then has.
	settle func(op) string
	// derive returns the effective CPUs or memory nodes of a group from its own
	// set and the effective set of its parent.
	derive func(own, parent unit.CPUSet) unit.CPUSet
}

// Rules returns the names of the rules that apply to a cgroup version.
func Rules(version int) []string {
	var names []string
	for _, r := range rulesOf(version) {
		names = append(names, r.name)
	}
	return names
}

func rulesOf(version int) []rule {
	all := slices.Concat(existenceRules(), groupRules(), cpuRules(), cpusetRules(), memoryRules(), ioRules(), runRules())
	return slices.DeleteFunc(all, func(r rule) bool { return r.version != 0 && r.version != version })
}

// existenceRules returns the rules about missing groups and files. They are
// checked first, because all other rules need a group and a file.
func existenceRules() []rule {
	return []rule{
		{
			name: "the files of a removed group are gone", operation: "write",
			refuse: func(o op) syscall.Errno { return refuseIf(o.gone, syscall.ENOENT) },
		},
		{
			name: "the root group has no weight, idle or limit", operation: "write",
			refuse: func(o op) syscall.Errno {
				if o.path != "" || o.file == "cgroup.subtree_control" {
					return 0
				}
				if _, exists := o.g.files[o.file]; exists {
					return syscall.EINVAL
				}
				return syscall.ENOENT
			},
		},
		{
			name: "a file of the other cgroup version does not exist", operation: "write",
			refuse: func(o op) syscall.Errno {
				_, exists := newFiles[o.n.version][o.file]
				return refuseIf(!exists, syscall.ENOENT)
			},
		},
	}
}

func groupRules() []rule {
	return []rule{
		{
			name: "a group with tasks cannot be removed", operation: "remove",
			refuse: func(o op) syscall.Errno { return refuseIf(o.n.tasksIn(o.path, false) > 0, syscall.EBUSY) },
		},
		{
			name: "a group with children cannot be removed", operation: "remove",
			refuse: func(o op) syscall.Errno { return refuseIf(len(o.n.children(o.path)) > 0, syscall.EBUSY) },
		},
		{
			name: "a dead process cannot be attached", operation: "attach",
			refuse: func(o op) syscall.Errno { return refuseIf(o.n.tasks[o.pid] == nil, syscall.ESRCH) },
		},
		{
			name: "no fork beyond pids.max", operation: "fork",
			refuse: func(o op) syscall.Errno {
				for p := o.path; p != ""; p = p.Parent() {
					if o.n.tasksIn(p, true)+1 > o.n.groups[p].number("pids.max") {
						return syscall.EAGAIN
					}
				}
				return 0
			},
		},
		{
			name: "a group with tasks cannot give memory to children", version: 2, operation: "write", files: "cgroup.subtree_control",
			refuse: func(o op) syscall.Errno {
				return refuseIf(o.path != "" && hasWord(o.text, "+memory") && o.n.tasksIn(o.path, false) > 0, syscall.EBUSY)
			},
		},
		{
			name: "no task enters a group that gives memory to children", version: 2, operation: "attach",
			refuse: func(o op) syscall.Errno {
				return refuseIf(o.path != "" && hasWord(o.g.files["cgroup.subtree_control"], "memory"), syscall.EBUSY)
			},
		},
		{
			name: "a controller that is off takes its files away", version: 2, operation: "write",
			refuse: func(o op) syscall.Errno {
				c := controllerOf(o.file)
				return refuseIf(c != "cgroup" && !hasWord(o.n.enabledControllers(o.path), c), syscall.ENOENT)
			},
		},
		{
			name: "a controller comes from the parent", version: 2, operation: "write", files: "cgroup.subtree_control",
			refuse: func(o op) syscall.Errno {
				for _, c := range withSign(o.text, '+') {
					if !hasWord(o.n.enabledControllers(o.path), c) {
						return syscall.ENOENT
					}
				}
				return 0
			},
		},
		{
			name: "a controller that a child passes on cannot be taken", version: 2, operation: "write", files: "cgroup.subtree_control",
			refuse: func(o op) syscall.Errno {
				for _, c := range withSign(o.text, '-') {
					for _, child := range o.n.children(o.path) {
						if hasWord(o.n.groups[child].files["cgroup.subtree_control"], c) {
							return syscall.EBUSY
						}
					}
				}
				return 0
			},
		},
	}
}

// enabledControllers returns the controllers that the parent of p has enabled
// for p.
func (n *Node) enabledControllers(p node.CgroupPath) string {
	if p == "" {
		return controllers
	}
	if parent := n.groups[p.Parent()]; parent != nil {
		return parent.files["cgroup.subtree_control"]
	}
	return controllers
}

func refuseIf(wrong bool, with syscall.Errno) syscall.Errno {
	if wrong {
		return with
	}
	return 0
}
