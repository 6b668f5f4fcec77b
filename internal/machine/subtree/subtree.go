// Package subtree lists what is in and below a cgroup: cgroups, processes and
// threads.
package subtree

import (
	"errors"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/model/node"
)

// Cgroups appends to all the cgroups below p, parents before children. If p
// does not exist, it appends none. It omits cgroups that it cannot read. Use it
// only where the kernel refuses a write if one is missing.
func Cgroups(tree *cgroup.Tree, all []node.CgroupPath, p node.CgroupPath) []node.CgroupPath {
	children, _ := tree.Children(string(p)) //nolint:errcheck // empty: the cgroup is gone or cannot be read
	for _, c := range children {
		all = Cgroups(tree, append(all, p.Join(c)), p.Join(c))
	}
	return all
}

// EachProcess calls do for each process in and below a cgroup. It skips cgroups
// that it cannot read.
func EachProcess(tree *cgroup.Tree, p node.CgroupPath, do func(pid int)) {
	pids, _ := tree.Procs(string(p)) //nolint:errcheck // the caller counts what it can see
	for _, pid := range pids {
		do(pid)
	}
	children, _ := tree.Children(string(p)) //nolint:errcheck // the caller counts what it can see
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
// if the cgroup p itself does not exist. With a partial.Error, it lists the
// threads of all cgroups that it could read.
func ThreadsBut(tree *cgroup.Tree, p node.CgroupPath, skip func(node.CgroupPath) bool) ([]int, error) {
	if skip(p) {
		return nil, nil
	}
	found, err := tree.Threads(string(p))
	if err != nil {
		return nil, err
	}
	missed := &partial.Error{}
	found = appendThreads(tree, found, p, skip, missed)
	return found, missed.OrNil()
}

// appendThreads appends the threads of the cgroups below p.
func appendThreads(tree *cgroup.Tree, found []int, p node.CgroupPath, skip func(node.CgroupPath) bool, missed *partial.Error) []int {
	children, err := tree.Children(string(p))
	if err != nil && !errors.Is(err, cgroup.ErrGone) {
		missed.Add(string(p), err)
	}
	for _, name := range children {
		child := p.Join(name)
		if skip(child) {
			continue
		}
		threads, err := tree.Threads(string(child))
		if errors.Is(err, cgroup.ErrGone) {
			continue
		}
		if err != nil {
			missed.Add(string(child), err)
		}
		found = appendThreads(tree, append(found, threads...), child, skip, missed)
	}
	return found
}
