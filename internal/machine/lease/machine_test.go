package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAMachineHasOneAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "machine.lock")
	first, err := HoldMachine(path, "/run/one")
	do(t, err)
	_, err = HoldMachine(path, "/run/two")
	if want := fmt.Sprintf("process %d manages this machine, with its state in /run/one", os.Getpid()); !errors.Is(err, ErrHeld) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("a second one: %v, want %q", err, want)
	}
	do(t, first.Close())
	second, err := HoldMachine(path, "/o")
	do(t, err)
	defer second.Close()
	if got := stateIn(path); got != "/o" {
		t.Errorf("after another holder the directory is %q", got)
	}
}

// TestLockOfADeadAgentIsFree checks that the lock ends together with the
// process that holds it.
func TestLockOfADeadAgentIsFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machine.lock")
	do(t, os.WriteFile(path, []byte("99999     \n/run/of/the/dead\n"), 0o644))
	f, err := HoldMachine(path, "/run/tenon")
	do(t, err)
	do(t, f.Close())
}

func TestMachineThatCannotBeLockedIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	do(t, os.WriteFile(file, nil, 0o644))
	if _, err := HoldMachine(filepath.Join(file, "machine.lock"), "/run/tenon"); err == nil || errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "lock the machine") {
		t.Errorf("got %v", err)
	}
}

// TestTheLockOfTheMachineIsMadeAgain removes the lock file, or the directory of
// this file. Keep must take the lock again. If another agent has taken it
// meanwhile, Keep must return ErrHeld.
func TestTheLockOfTheMachineIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "machine.lock")
	m, err := HoldMachine(path, "/run/one")
	do(t, err)
	defer m.Close()
	do(t, os.RemoveAll(filepath.Dir(path)))
	do(t, m.Keep())
	if _, err := HoldMachine(path, "/run/two"); !errors.Is(err, ErrHeld) {
		t.Errorf("a second one: %v", err)
	}
	do(t, os.Remove(path))
	second, err := HoldMachine(path, "/run/two")
	do(t, err)
	defer second.Close()
	if err := m.Keep(); !errors.Is(err, ErrHeld) {
		t.Errorf("the first one, beside a second: %v", err)
	}
	do(t, new(Machine).Keep())
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the lock, and hold it: %v %v", info.Mode(), err)
	}
}
