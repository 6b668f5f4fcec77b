package proc

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A CgroupEntry is the cgroup of a process in one cgroup hierarchy.
type CgroupEntry struct {
	Hierarchy int // 0 is cgroup v2
	// Controllers are the controllers of a v1 hierarchy. A named hierarchy has
	// the single entry "name=systemd", and v2 has none.
	Controllers []string
	// Path has a leading slash. It is relative to the root of the cgroup
	// namespace of the process that reads it.
	Path string
}

// Cgroup reads /proc/PID/cgroup (cgroups(7)). If the process has ended, it
// returns ErrGone. If some lines are damaged, it returns all others, and an
// error.
func (fs FS) Cgroup(pid int) ([]CgroupEntry, error) {
	return taskFile(fs, pid, 0, "cgroup", parseCgroup)
}

// SelfCgroup reads /proc/self/cgroup.
func (fs FS) SelfCgroup() ([]CgroupEntry, error) { return procFile(fs, "self/cgroup", parseCgroup) }

// FindCPUPath returns CPUPath of the result of Cgroup or SelfCgroup. A damaged line
// is an error only if it may be the one of the cpu controller.
func FindCPUPath(entries []CgroupEntry, err error) (string, error) {
	if err != nil && !slices.ContainsFunc(entries, func(e CgroupEntry) bool { return slices.Contains(e.Controllers, "cpu") }) {
		return "", err
	}
	return CPUPath(entries), nil
}

// CPUPath returns the path of a process in the v1 hierarchy of the cpu
// controller. If there is none, it returns the path in the v2 hierarchy.
func CPUPath(entries []CgroupEntry) (path string) {
	for _, e := range entries {
		if slices.Contains(e.Controllers, "cpu") || len(e.Controllers) == 0 && path == "" {
			path = e.Path
		}
	}
	return path
}

// parseCgroup reads lines such as
//
//	3:cpu,cpuacct:/system.slice
//	1:name=systemd:/system.slice/ssh.service
//	0::/
func parseCgroup(text string) ([]CgroupEntry, error) {
	var entries []CgroupEntry
	var errs []error
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			errs = append(errs, fmt.Errorf("line %q: want HIERARCHY:CONTROLLERS:/PATH", line))
			continue
		}
		n, err := strconv.ParseUint(f[0], 10, 31)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %q: want a hierarchy number first", line))
			continue
		}
		e := CgroupEntry{Hierarchy: int(n), Path: f[2]}
		if f[1] != "" {
			e.Controllers = strings.Split(f[1], ",")
		}
		entries = append(entries, e)
	}
	return entries, errors.Join(errs...)
}
