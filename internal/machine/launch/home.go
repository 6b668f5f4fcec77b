package launch

import (
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
)

// homes lists the cgroup directories of this process in those hierarchies in
// which the command has another cgroup.
func (r *run) homes() ([]string, error) {
	entries, err := r.FS.SelfCgroup()
	if err != nil {
		return nil, fmt.Errorf("find the cgroup of tenon run: %w", err)
	}
	var dirs []string
	for _, c := range cgroup.Controllers() {
		version := r.Tree.VersionOf(c)
		group, err := r.Tree.Dir(c, string(r.workload.Cgroup))
		if version == 0 || err != nil {
			continue
		}
		root, err := r.Tree.Dir(c, "")
		if err != nil {
			return nil, err
		}
		dir := root
		if e, found := entryOf(entries, c, version); found {
			dir = strings.TrimSuffix(root+"/"+strings.Trim(e.Path, "/"), "/")
		}
		if dir != group && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
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
