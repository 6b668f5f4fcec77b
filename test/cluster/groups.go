package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hierarchies returns the mount points of this machine's control groups: one
// with cgroup v2, and one for each group of controllers with v1.
func hierarchies() ([]string, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") && strings.HasPrefix(f[1], "/sys/fs/cgroup") {
			dirs = append(dirs, f[1])
		}
	}
	if len(dirs) == 0 {
		return nil, errors.New("no cgroup file system below /sys/fs/cgroup")
	}
	return dirs, nil
}

// groupPrefix returns the prefix of the names of a cluster's control groups.
func groupPrefix(name string) string { return "testbed-" + name + "-" }

// makeGroups makes the root cgroup of a node in every hierarchy, with all CPUs
// and memory nodes of the machine.
func makeGroups(root string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, top := range dirs {
		dir := filepath.Join(top, root)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the node's control group: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(top, file))
			if err != nil {
				continue // another controller; or v2, which inherits the value
			}
			if err := os.WriteFile(filepath.Join(dir, file), all, 0o644); err != nil {
				return fmt.Errorf("make the node's control group: %w", err)
			}
		}
		// On v2, a cgroup must enable a controller for the cgroups below it.
		controllers, err := os.ReadFile(filepath.Join(top, "cgroup.controllers"))
		if err != nil {
			continue
		}
		for _, c := range strings.Fields(string(controllers)) {
			for _, at := range []string{top, dir} {
				_ = os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+"+c), 0o644) // some controllers refuse; the kubelet reports a missing controller
			}
		}
	}
	return nil
}

// removeGroups removes the control groups of a cluster whose processes have
// ended. It returns an error if a cgroup is still in use.
func removeGroups(name string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, top := range dirs {
		roots, err := filepath.Glob(filepath.Join(top, groupPrefix(name)+"*"))
		if err != nil {
			return err
		}
		for _, root := range roots {
			// Only a number may follow the prefix: testbed-dev-1 is no node of
			// a cluster with the name de.
			if _, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(root), groupPrefix(name))); err != nil {
				continue
			}
			groups, err := groupsBelow(root)
			errs = append(errs, err)
			for _, dir := range slices.Backward(groups) {
				if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// Sweep removes what killed tests have left: clusters whose init has ended, and
// cgroups that have the PID of an ended test in their names. At such a cgroup may
// be notes of a Tenon whose state directory is gone, and tenon restore fails as
// long as it finds them.
func Sweep() error {
	var errs []error
	for _, c := range otherClusters("") {
		if !c.alive() {
			errs = append(errs, c.Down())
		}
	}
	return errors.Join(append(errs, sweepGroups())...)
}

func sweepGroups() error {
	dirs, err := hierarchies()
	errs := []error{err}
	for _, top := range dirs {
		roots, err := filepath.Glob(filepath.Join(top, "tenon-test-*"))
		errs = append(errs, err)
		for _, root := range roots {
			if pid := ownerOf(filepath.Base(root)); pid == 0 || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				continue
			}
			errs = append(errs, retry(context.Background(), 5*time.Second, func() error { return removeKilled(root) }))
		}
	}
	return errors.Join(errs...)
}

// ownerOf returns the PID in the name of a test's cgroup, which is its first
// number; 0 if it has none.
func ownerOf(name string) int {
	for part := range strings.SplitSeq(name, "-") {
		if pid, err := strconv.Atoi(part); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// removeKilled kills the processes in a cgroup and below it, and removes it.
func removeKilled(root string) error {
	groups, err := groupsBelow(root)
	errs := []error{err}
	for _, dir := range slices.Backward(groups) {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err)
		for line := range strings.Lines(string(procs)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				errs = append(errs, syscall.Kill(pid, syscall.SIGKILL))
			}
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// groupsBelow lists a control group and all control groups below it, parents
// first.
func groupsBelow(root string) ([]string, error) {
	var groups []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed in the meantime
		}
		if err == nil && d.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	return groups, err
}
