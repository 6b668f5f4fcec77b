package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/kernel/task"
)

// haveSlices returns an error that names the threads in and below a cgroup with
// another slice than the wanted one. It returns nil if there are no such
// threads, or if threads have no slices on this kernel.
func haveSlices(dir string, want task.SliceKind) error {
	slices, err := task.NewSlices()
	if errors.Is(err, task.ErrUnsupported) {
		return nil
	} else if err != nil {
		return err
	}
	groups, err := groupsBelow(dir)
	seen := 0
	for _, g := range groups {
		procs, _ := os.ReadFile(filepath.Join(g, "cgroup.procs")) // a removed cgroup has no processes
		for _, pid := range strings.Fields(string(procs)) {
			threads, _ := os.ReadDir(filepath.Join("/proc", pid, "task"))
			for _, entry := range threads {
				tid, _ := strconv.Atoi(entry.Name())
				kind, failed := slices.Kind(tid)
				switch {
				case errors.Is(failed, task.ErrGone):
				case failed != nil:
					err = errors.Join(err, failed)
				case kind != want:
					err = errors.Join(err, fmt.Errorf("the slice of thread %d in %s is of kind %d, want %d", tid, g, kind, want))
				default:
					seen++
				}
			}
		}
	}
	if err == nil && seen == 0 {
		err = fmt.Errorf("no thread is in %s", dir)
	}
	return err
}
