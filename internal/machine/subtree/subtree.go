// Package subtree lists what is in and below a cgroup: cgroups, processes and
// threads.
package subtree

import (
	"errors"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

// Cgroups appends to all the cgroups below p, parents before children. If p
// does not exist, it appends none.
func Cgroups(tree *cgroup.Tree, all []node.CgroupPath, p node.CgroupPath) []node.CgroupPath {
	children, _ := tree.Children(string(p)) // empty: the cgroup is gone
	for _, c := range children {
		all = Cgroups(tree, append(all, p.Join(c)), p.Join(c))
	}
	return all
}

// EachProcess calls do for each process in and below a cgroup. It skips cgroups
// that it cannot read.
func EachProcess(tree *cgroup.Tree, p node.CgroupPath, do func(pid int)) {
	pids, _ := tree.Procs(string(p))
	for _, pid := range pids {
		do(pid)
	}
	children, _ := tree.Children(string(p))
	for _, c := range children {
		EachProcess(tree, p.Join(c), do)
	}
}

// Threads lists the threads in and below a cgroup.
func Threads(tree *cgroup.Tree, p node.CgroupPath) ([]int, error) {
	return ThreadsBut(tree, p, func(node.CgroupPath) bool { return false })
}

// ThreadsBut lists the threads in and below a cgroup. It omits each cgroup for
// which skip returns true, with all cgroups below it. It returns cgroup.ErrGone
// if the cgroup p itself does not exist.
func ThreadsBut(tree *cgroup.Tree, p node.CgroupPath, skip func(node.CgroupPath) bool) ([]int, error) {
	if skip(p) {
		return nil, nil
	}
	found, err := tree.Threads(string(p))
	if err != nil {
		return nil, err
	}
	children, err := tree.Children(string(p))
	if err != nil {
		return nil, err
	}
	for _, name := range children {
		below, err := ThreadsBut(tree, p.Join(name), skip)
		if err != nil && !errors.Is(err, cgroup.ErrGone) {
			return nil, err
		}
		found = append(found, below...)
	}
	return found, nil
}
