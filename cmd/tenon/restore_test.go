package main

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/journal"
)

// TestARestoreLeavesALabThatRuns has a lab with a process of its experiment. The restore
// must refuse while the lab runs, and end the process when the lab is dead.
func TestARestoreLeavesALabThatRuns(t *testing.T) {
	dir, fs := t.TempDir(), proc.Default()
	boot, err := fs.BootID()
	if err != nil {
		t.Fatal(err)
	}
	lab, labs := sleeper(t, fs)
	_, service := sleeper(t, fs)
	j, err := journal.Open(dir, boot, journal.Session{PID: labs.PID, Start: labs.Start, Lab: true})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Spawned(service); err != nil {
		t.Fatal(err)
	}
	if r, refused, err := restoreFrom(t.Context(), dir, false); err == nil || !errors.Is(err, refused) || !r.Empty() || !change.Alive(fs, service) {
		t.Fatalf("beside a lab that runs: %v, %v", err, r)
	}
	r, refused, err := restoreFrom(t.Context(), dir, true)
	if err != nil || refused == nil || !slices.Equal(r.Killed, []int{service.PID}) {
		t.Errorf("dry run beside a lab that runs: refused %v, %v, %v", refused, err, r)
	}
	if text := printReport(r, dir, true, refused); !strings.Contains(text, refused.Error()) || !strings.Contains(text, "\nend       1 process of a lab\n") {
		t.Errorf("the dry run says %q", text)
	}
	_ = lab.Process.Kill()
	_ = lab.Wait()
	if r, _, err := restoreFrom(t.Context(), dir, false); err != nil || !slices.Equal(r.Killed, []int{service.PID}) || change.Alive(fs, service) {
		t.Errorf("after a lab that was killed: %v, %v", err, r)
	}
}

// sleeper starts a process that the end of the test ends.
func sleeper(t *testing.T, fs proc.FS) (*exec.Cmd, journal.Process) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p, err := change.Identify(fs, cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}
