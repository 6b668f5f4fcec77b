package launch

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// homes lists the cgroup directories of this process in those hierarchies in
// which the command has another cgroup.
func (r *run) homes() ([]string, error) {
	dirs, _, err := r.dirsOf(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("find the cgroup of tenon run: %w", err)
	}
	for _, c := range cgroup.Controllers() {
		if group, err := r.Tree.Dir(c, string(r.workload.Cgroup)); err == nil {
			dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir == group })
		}
	}
	return dirs, nil
}

// dirsOf returns the cgroup directories of a process, one for each hierarchy, and
// its cgroup in the hierarchy of the CPU. That hierarchy is the first.
func (r *run) dirsOf(pid int) (dirs []string, group node.CgroupPath, err error) {
	entries, err := r.FS.Cgroup(pid)
	if err != nil {
		return nil, "", err
	}
	for _, c := range cgroup.Controllers() {
		version := r.Tree.VersionOf(c)
		if version == 0 {
			continue
		}
		e, _ := entryOf(entries, c, version)
		path := node.CgroupPath(strings.Trim(e.Path, "/"))
		dir, err := r.Tree.Dir(c, string(path))
		if err != nil {
			return nil, "", err
		}
		if c == "cpu" {
			group = path
		}
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, group, nil
}

// entryOf returns the line of /proc/PID/cgroup for a controller, and whether there is one.
func entryOf(entries []proc.CgroupEntry, controller string, version int) (proc.CgroupEntry, bool) {
	name := cgroup.ControllerIn(version, controller)
	for _, e := range entries {
		if version == 2 && len(e.Controllers) == 0 || version == 1 && slices.Contains(e.Controllers, name) {
			return e, true
		}
	}
	return proc.CgroupEntry{}, false
}
