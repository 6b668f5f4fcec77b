package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/proc"
)

// Descendants lists a process and its descendants that still run. If the parent
// of a process has ended, the process no longer counts as a descendant.
func Descendants(fs proc.FS, pid int) ([]int, error) {
	threads, err := fs.Threads(pid)
	if err != nil {
		return nil, err
	}
	all := []int{pid}
	for _, tid := range threads {
		// The file needs CONFIG_PROC_CHILDREN. If the thread has ended, the
		// file does not exist.
		text, err := os.ReadFile(filepath.Join(fs.Proc, strconv.Itoa(pid), "task", strconv.Itoa(tid), "children"))
		if err != nil {
			continue
		}
		for word := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("children of process %d: %w", pid, err)
			}
			if below, err := Descendants(fs, child); err == nil { // an error means that the child has ended
				all = append(all, below...)
			}
		}
	}
	return all, nil
}

// TreeTime returns the CPU time of a process and its descendants. A descendant
// that has ended counts if its parent has waited for it.
func TreeTime(fs proc.FS, pid int) (time.Duration, error) {
	pids, err := Descendants(fs, pid)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, pid := range pids {
		if s, err := fs.PIDStat(pid); err == nil {
			sum += s.UserTime + s.SystemTime + s.ChildUserTime + s.ChildSystemTime
		}
	}
	return sum, nil
}

// Adopt journals the descendants of p, so that a restore also ends them if the
// lab is killed. Processes in the lab's cgroups need no entry in the journal.
func (p *Process) Adopt(fs proc.FS) error {
	pids, err := Descendants(fs, p.PID)
	if err != nil {
		return err
	}
	for _, pid := range pids[1:] {
		if err := p.in.Spawned(pid); err != nil && !errors.Is(err, proc.ErrGone) {
			return err
		}
		p.adopted = append(p.adopted, pid)
	}
	return nil
}

// killSession kills the processes of p's session until none is left. As long as
// the session has a process, no other process can get the ID of the session.
func (p *Process) killSession() {
	fs := proc.Default()
	if _, err := fs.PIDStat(p.PID); err == nil && p.HasEnded() {
		return // another process has the number, so the session is empty
	}
	for range 1000 {
		pids, err := fs.PIDs()
		if err != nil {
			return
		}
		left := 0
		for _, pid := range pids {
			if s, err := fs.PIDStat(pid); err == nil && s.Session == p.PID && s.State != 'Z' {
				left++
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// CheckLeaving checks that processes can leave all cgroups. The root of the
// mounted tree must be the real root. In the cgroup namespace of a container,
// the root of the tree is a cgroup that has a weight.
func (s *Site) CheckLeaving() error {
	dir, err := s.Tree.Dir("cpu", "")
	if err != nil {
		return err
	}
	// On v2, every cgroup except the real root has cgroup.type. On v1, only the
	// real root has release_agent.
	_, child := os.Stat(filepath.Join(dir, "cgroup.type"))
	_, root := os.Stat(filepath.Join(dir, "release_agent"))
	if s.Tree.VersionOf("cpu") == 2 && child == nil || s.Tree.VersionOf("cpu") == 1 && root != nil {
		return fmt.Errorf("%s is a cgroup below the root, probably that of a container: processes cannot leave all cgroups here", dir)
	}
	return nil
}

// Autogroup describes the kernel's setting kernel.sched_autogroup_enabled.
func (s *Site) Autogroup() string {
	text, err := os.ReadFile(filepath.Join(s.FS.Proc, "sys/kernel/sched_autogroup_enabled"))
	switch value := strings.TrimSpace(string(text)); {
	case err != nil:
		return "the kernel has no autogroups: nice and SCHED_IDLE count between all processes"
	case value == "0":
		return "kernel.sched_autogroup_enabled is 0: nice and SCHED_IDLE count between all processes"
	default:
		return "kernel.sched_autogroup_enabled is " + value + ": the CPU is divided by session, and nice and SCHED_IDLE count only within a session"
	}
}
