package change_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
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

// TestEachKindOfEntryNamesItsProcess has one entry of each kind, each of another
// process. Tenon must end none of these processes, and must not take one for a
// process that is not in this journal.
func TestEachKindOfEntryNamesItsProcess(t *testing.T) {
	by := func(pid int) journal.Session { return journal.Session{PID: pid, Start: 10} }
	all := change.Sessions(journal.State{
		Touches:   map[node.Knob]journal.Touch{{Cgroup: "a", File: node.FileCPUs}: {By: by(1)}},
		Groups:    map[node.CgroupPath]journal.Session{"b": by(2)},
		Controls:  map[string]journal.MadeControl{"BE": {By: by(3)}},
		Processes: map[journal.Process]journal.Session{{PID: 9}: by(4)},
		Enabled:   map[journal.ChildController]journal.Enabling{{Controller: "memory"}: {By: by(5)}},
	})
	for pid := 1; pid <= 5; pid++ {
		if !slices.Contains(all, by(pid)) {
			t.Errorf("process %d is not in %v", pid, all)
		}
	}
}
