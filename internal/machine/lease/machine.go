package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// noteAt is where the note of a machine lock stands in its file, after the pid.
const noteAt = 11

// HoldMachine takes the lock of a whole machine: the lease only keeps a second
// agent out of one directory, and two agents with a directory each would undo
// each other's writes in every turn. If another process has it, the error is ErrHeld
// and names that one and the directory of its state. Else the lock is held until
// the result is closed, or the process ends.
//
// The lock is that of a file, which every agent of the machine must see: in a
// container its directory is mounted from the host.
func HoldMachine(path, state string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock the machine: %w", err)
	}
	f, err := acquire(path)
	if errors.Is(err, ErrHeld) {
		pid, held := locked(path)
		if !held {
			return nil, fmt.Errorf("lock the machine by %s: %w, and left at this moment", path, err)
		}
		return nil, fmt.Errorf("process %d keeps this machine, with its state in %s (%s): %w", pid, stateIn(path), path, ErrHeld)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the machine: %w", err)
	}
	if abs, err := filepath.Abs(state); err == nil {
		state = abs
	}
	// On a full file system the name is missing, and the lock as good.
	if f.Truncate(noteAt) == nil {
		_, _ = f.WriteAt([]byte(state+"\n"), noteAt)
	}
	return f, nil
}

// stateIn is the directory that the holder of a machine lock has noted.
func stateIn(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) <= noteAt {
		return "an unknown directory"
	}
	return strings.TrimSpace(string(text[noteAt:]))
}
