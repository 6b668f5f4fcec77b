package launch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// Forbidden reports whether err means that Tenon may not create cgroups, or
// that the node has no usable cgroups. A command that the kernel does not start
// is another error, although the kernel may say that the permission is missing.
func Forbidden(err error) bool {
	var start *StartError
	if errors.As(err, &start) {
		return false
	}
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, cgroup.ErrUnsupported)
}

// errBusyRoot is the usual state of a container: its first process is in the root
// of its cgroup namespace.
var errBusyRoot = fmt.Errorf("the root cgroup of this container has processes, so its child cgroups can have no controller: %w", cgroup.ErrUnsupported)

// RootRights returns an error if root cannot launch commands in cgroups, because
// the root of the hierarchy passes on no controller of CPUs. Forbidden is true
// for this error.
func RootRights(tree *cgroup.Tree) error {
	if tree.VersionOf("cpu") != 2 {
		return nil
	}
	s, err := cgroup.ReadSubtree(tree, "")
	if err == nil && s.Busy && !slices.Contains(s.Enabled, "cpu") {
		return errBusyRoot
	}
	return nil // another error of the tree shows when the group is made
}

// ExplainLess returns one line for a command that runs without a cgroup. It
// says what the command gets, what it does not get, and how the user can change
// that. cause is the error that forbids cgroups.
func ExplainLess(c Command, cause error) string {
	how := "sudo tenon run ..., or as a user of systemd: systemd-run --user --scope -p Delegate=yes tenon run ..."
	switch {
	case errors.Is(cause, errBusyRoot):
		how = "move all its processes to a child cgroup first, as systemd does when it is the first process of the container"
	case os.Geteuid() == 0:
		how = "a writable cgroup file system (in a container: --privileged, or cgroups of its own)"
	}
	gets := fmt.Sprintf("%s runs like any other command, not as %s", c.Args[0], c.Class)
	if c.Class == node.BE {
		gets = c.Args[0] + " gets SCHED_IDLE, nice 19 and idle I/O, but no cgroup: it yields only to work in the cgroup that it is in"
	}
	if c.CPULimit.Known() || c.MemoryLimit.Known() {
		gets += ", and --cpus and --memory have no effect"
	}
	return fmt.Sprintf("%s (%s); for all of it: %s", gets, strings.ReplaceAll(cause.Error(), "\n", "; "), how)
}

// Delegated returns the highest cgroup in which an unprivileged user may create
// cgroups and move processes (Documentation/admin-guide/cgroup-v2.rst,
// "Delegation"). It examines the cgroup of this process and those above it. On
// cgroup v1, or if there is none, it returns an error for which Forbidden is true.
func Delegated(tree *cgroup.Tree, fs proc.FS) (node.CgroupPath, error) {
	if tree.VersionOf("cpu") != 2 {
		return "", fmt.Errorf("cgroup v1 is for root only: %w", os.ErrPermission)
	}
	entries, err := fs.SelfCgroup()
	if err != nil {
		return "", err
	}
	own, _ := entryOf(entries, "cpu", 2)
	root, err := tree.Dir("cpu", "")
	if err != nil {
		return "", err
	}
	path, found := findDelegated(root, node.CgroupPath(strings.Trim(own.Path, "/")), writable)
	if !found {
		return "", fmt.Errorf("no cgroup is delegated to this user: %w", os.ErrPermission)
	}
	return path, nil
}

// findDelegated walks up from own, the cgroup of this process. A user can create a
// cgroup if the directory and cgroup.procs are writable. (For a move, the kernel
// checks cgroup.procs of the common ancestor.) The children must also have the cpu
// controller, or the user must be able to enable it for them. To enable a
// controller, the kernel requires the root or a cgroup without processes.
func findDelegated(root string, own node.CgroupPath, writable func(string) bool) (highest node.CgroupPath, found bool) {
	for p := own; ; p = p.Parent() {
		dir := root + "/" + string(p)
		if !writable(dir) || !writable(dir+"/cgroup.procs") || !writable(dir+"/cgroup.subtree_control") {
			return highest, found
		}
		passes := slices.Contains(words(dir+"/cgroup.subtree_control"), "cpu")
		could := slices.Contains(words(dir+"/cgroup.controllers"), "cpu") && len(words(dir+"/cgroup.procs")) == 0
		if passes || could {
			highest, found = p, true
		}
		if p == "" {
			return highest, found
		}
	}
}

func words(file string) []string {
	text, _ := os.ReadFile(file) //nolint:errcheck // without the file there is no right, and the command runs without a cgroup
	return strings.Fields(string(text))
}

func writable(path string) bool { return unix.Access(path, unix.W_OK) == nil }
