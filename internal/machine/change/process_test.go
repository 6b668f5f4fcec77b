package change_test

import (
	"os"
	"os/exec"
	"testing"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/journal"
)

// TestAnotherProcessOfTheSameNumberIsNotAlive checks a process that has the pid
// of an ended one.
func TestAnotherProcessOfTheSameNumberIsNotAlive(t *testing.T) {
	fs := proc.Default()
	self, err := change.Identify(fs, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !change.Alive(fs, self) {
		t.Error("this process is not alive")
	}
	if other := (journal.Process{PID: self.PID, Start: self.Start - 1}); change.Alive(fs, other) {
		t.Error("a process that had this number before is alive")
	}
}

func TestDescendantsAreFound(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	fs := proc.Default()
	self, err := change.Identify(fs, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]journal.Process{self.PID: self}
	change.AddDescendants(fs, found)
	if p, is := found[child.Process.Pid]; !is || !change.Alive(fs, p) {
		t.Errorf("process %d is not among the descendants of its parent: %v", child.Process.Pid, found)
	}
}
