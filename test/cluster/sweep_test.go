package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// TestWhatAKilledTestLeftIsRemoved makes cgroups with a process, as a test makes
// them that is then killed, and one of a test that runs.
func TestWhatAKilledTestLeftIsRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes cgroups")
	}
	ended := exec.Command("true")
	must(t, ended.Run())
	dirs, err := hierarchies()
	must(t, err)
	left := filepath.Join(dirs[0], fmt.Sprintf("tenon-test-site-%d", ended.Process.Pid))
	used := filepath.Join(dirs[0], fmt.Sprintf("tenon-test-%d-used", os.Getpid()))
	t.Cleanup(func() { _ = os.Remove(used) })
	must(t, os.MkdirAll(filepath.Join(left, "batch", "job"), 0o755))
	must(t, os.Mkdir(used, 0o755))
	task := exec.Command("sleep", "600")
	must(t, task.Start())
	t.Cleanup(func() { _ = task.Process.Kill() })
	must(t, os.WriteFile(filepath.Join(left, "batch", "job", "cgroup.procs"), []byte(strconv.Itoa(task.Process.Pid)), 0o644))
	must(t, sweepGroups())
	if _, err := os.Stat(left); err == nil {
		t.Errorf("%s is left", left)
	}
	if err := task.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process in it: %v; want it killed", err)
	}
	if _, err := os.Stat(used); err != nil {
		t.Errorf("the cgroup of a test that runs: %v", err)
	}
}
