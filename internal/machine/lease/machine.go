package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tenon.sh/tenon/internal/machine/statedir"
)

// noteAt is the offset, in bytes, of the state directory in the file of a
// machine lock. The pid is before it.
const noteAt = statedir.SignatureSize

// A Machine is the lock of the whole machine. The zero Machine is not locked.
type Machine struct {
	path, state string
	lock        *os.File
}

// HoldMachine takes the lock of the whole machine, until Close or the end of
// the process. The lock is needed because a lease excludes a second agent only
// if both have the same state directory. Otherwise the agents would overwrite
// each other's values in every tick. If another process has the lock,
// HoldMachine returns ErrHeld, and names that process and its state directory.
//
// All agents of a machine must use the same lock file. So a container mounts
// the directory of this file from the host.
func HoldMachine(path, state string) (*Machine, error) {
	if err := statedir.Make(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("lock the machine: %w", err)
	}
	f, err := acquire(path)
	if errors.Is(err, ErrHeld) {
		pid, held := lockHolder(path)
		if !held {
			return nil, fmt.Errorf("lock the machine by %s: %w, by a process that has just ended", path, err)
		}
		return nil, fmt.Errorf("process %d manages this machine, with its state in %s (%s): %w", pid, stateIn(path), path, ErrHeld)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the machine: %w", err)
	}
	if abs, err := filepath.Abs(state); err == nil {
		state = abs
	}
	// The lock works even if a full file system refuses the note.
	if f.Truncate(noteAt) == nil {
		_, _ = f.WriteAt([]byte(state+"\n"), noteAt)
	}
	return &Machine{path, state, f}, nil
}

// Keep takes the lock again if another program has removed the lock file. If a
// second agent has locked a new file meanwhile, Keep returns ErrHeld.
func (m *Machine) Keep() error {
	if m.lock == nil || statedir.IsCurrent(m.lock) {
		return nil
	}
	next, err := HoldMachine(m.path, m.state)
	if err != nil {
		return err
	}
	_ = m.lock.Close()
	m.lock = next.lock
	return nil
}

// Close releases the lock.
func (m *Machine) Close() error {
	if m.lock == nil {
		return nil
	}
	return m.lock.Close()
}

// stateIn returns the state directory that the holder of a machine lock wrote
// into the lock file.
func stateIn(path string) string {
	text, err := statedir.ReadFile(path)
	if err != nil || len(text) <= noteAt {
		return "an unknown directory"
	}
	return strings.TrimSpace(string(text[noteAt:]))
}
