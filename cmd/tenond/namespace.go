package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
)

// enterCgroups executes this program again in the cgroup namespace of the
// process pid, if that is necessary. On cgroup v2, an unprivileged container
// has its own cgroup namespace, in which the kernel hides the cgroups above the
// container's cgroup. But tenond must manage them. If no change is necessary,
// enterCgroups returns nil. It needs CAP_SYS_ADMIN and CAP_SYS_PTRACE. To enter
// the namespace of the node's process 1, it also needs the PID namespace of the
// node.
func enterCgroups(pid int) error {
	fs := proc.Default()
	tree, err := cgroup.Detect(fs.Proc)
	if err != nil || !tree.StartsAboveNamespace() {
		return nil // the daemon reports this error itself
	}
	if err := restartIn(fmt.Sprintf("%s/%d/ns/cgroup", fs.Proc, pid)); err != nil {
		return fmt.Errorf("enter the cgroup namespace of process %d: %w", pid, err)
	}
	return nil
}

// restartIn executes this program again in a cgroup namespace, with the same
// pid. Only the calling thread enters the namespace, and the exec ends all
// other threads.
func restartIn(namespace string) error {
	there, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer there.Close()
	theirs, err := there.Stat()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := os.Open("/proc/thread-self/ns/cgroup")
	if err != nil {
		return err
	}
	defer here.Close()
	ours, err := here.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(ours, theirs) {
		return errors.New("the process is in the same cgroup namespace: either this container does not have the node's PID namespace (hostPID), or the cgroups are above that namespace too")
	}
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWCGROUP); err != nil {
		return err
	}
	err = syscall.Exec(self, os.Args, os.Environ())
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWCGROUP); back != nil {
		// Without the panic, this thread would stay in a different namespace from the
		// rest of the process.
		panic(fmt.Sprintf("return to the cgroup namespace, after %v: %v", err, back))
	}
	return err
}
