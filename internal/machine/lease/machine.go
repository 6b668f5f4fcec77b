package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// noteAt is where the note begins in the file of a machine lock, in bytes.
// Before it is the pid.
const noteAt = 11

// A Machine is the lock of the whole machine. The zero Machine holds no lock.
type Machine struct {
	path, state string
	lock        *os.File
}

// HoldMachine takes the lock of the whole machine. A lease prevents a second
// agent only for one state directory. Two agents with different directories
// would overwrite each other's values in every tick. If another process has the
// lock, HoldMachine returns ErrHeld, and the error names that process and its
// state directory. Otherwise the lock lasts until Close or the end of the
// process.
//
// All agents of a machine must see the same lock file. Therefore a container
// mounts the directory of this file from the host.
func HoldMachine(path, state string) (*Machine, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
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
	// On a full file system the note cannot be written, but the lock works.
	if f.Truncate(noteAt) == nil {
		_, _ = f.WriteAt([]byte(state+"\n"), noteAt)
	}
	return &Machine{path, state, f}, nil
}

// Keep takes the lock again if another program has removed its file, because a
// second agent would then lock a new file. If a second agent has already done
// that, it returns ErrHeld.
func (m *Machine) Keep() error {
	if m.lock == nil || isCurrent(m.lock) {
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

// stateIn returns the state directory of the process that holds a machine lock.
// That process wrote it into the file.
func stateIn(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) <= noteAt {
		return "an unknown directory"
	}
	return strings.TrimSpace(string(text[noteAt:]))
}
