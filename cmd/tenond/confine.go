package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/mounts"
	"tenon.sh/tenon/internal/kernel/proc"
)

// confine executes this program again without the means to change the node: in a mount
// namespace of its own, in which all that is mounted below /sys and /proc now is read-only,
// and with the capabilities to trace alone. So the kernel refuses what an observer must not
// do. What the node mounts there later, such as resctrl, arrives as the node mounts it. A
// process without CAP_SYS_ADMIN, such as that of a container, cannot do this, and need
// not: its file systems are what its container has. Then confine returns nil.
func confine() error {
	admin, err := hasCapability(unix.CAP_SYS_ADMIN)
	if err != nil || !admin {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Only this thread changes, and the exec ends all others.
	runtime.LockOSThread()
	if err := errors.Join(mountReadOnly(proc.Default().Proc, "/sys", "/proc"), keepCapabilities(unix.CAP_BPF, unix.CAP_PERFMON)); err != nil {
		// The thread is half confined: it must not run other goroutines.
		return fmt.Errorf("observe: give up the means to change this node: %w", err)
	}
	return syscall.Exec(self, os.Args, os.Environ())
}

func hasCapability(capability int) (bool, error) {
	_, data, err := capabilities()
	if err != nil {
		return false, err
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}

func capabilities() (unix.CapUserHeader, *[2]unix.CapUserData, error) {
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, new([2]unix.CapUserData)
	if err := unix.Capget(&header, &data[0]); err != nil {
		return header, nil, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return header, data, nil
}

// asUnconfinable adds to an error of confine what to do if this process was not started in
// order to observe: it has CAP_SYS_ADMIN, and is refused a mount namespace, as by the unit of
// a service that acts, or has no CAP_SETPCAP, as in the pod of an agent that acts. No restart
// mends that. So the result is a fault of the configuration, after which systemd does not
// start tenond again.
func asUnconfinable(err error, pod bool) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	const what = "%w: this tenond was started with the rights to act, and without those to give them up. "
	if pod {
		return faultsError{fmt.Errorf(what+"In a pod, the mode of the chart decides and not the key observe of agent.config: take the key out, and install the chart with mode=observe", err)}
	}
	return faultsError{fmt.Errorf(what+"As a service: systemctl stop tenond, tenon restore, and tenond install, which writes the unit that fits the key observe", err)}
}

// mountReadOnly gives this thread a mount namespace in which each mount at or below the
// directories is read-only. Mounts and unmounts of the node still reach it.
func mountReadOnly(procRoot string, dirs ...string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("separate the mount namespace: %w", err)
	}
	all, err := mounts.Below(procRoot, dirs...)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Type == "autofs" {
			continue // a look at it would mount something
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(m.Point, &fs); err != nil {
			return fmt.Errorf("statfs %s: %w", m.Point, err)
		}
		// These flags have the same numbers as those of statfs. A remount drops
		// those that it does not name.
		kept := uintptr(fs.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
		if err := unix.Mount("", m.Point, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kept, ""); err != nil {
			return fmt.Errorf("mount %s read-only: %w", m.Point, err)
		}
	}
	return nil
}

// keepCapabilities makes these the only capabilities of the program that this thread
// executes.
func keepCapabilities(keep ...int) error {
	header, data, err := capabilities()
	if err != nil {
		return err
	}
	for i := range data { // root's next program also gets the inheritable ones
		data[i].Inheritable = 0
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("clear the inheritable capabilities: %w", err)
	}
	for c := range 64 {
		if slices.Contains(keep, c) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel has no further ones
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}
