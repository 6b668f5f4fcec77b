package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/runtimes/container"
)

// A savedState is the content of statedir.MemoryFile.
type savedState struct {
	stamp
	// Read is the time of the last snapshot, with the counters in State, by the clock of
	// the stamp. On a large quiet node it may be ten seconds before the time of saving.
	Read  time.Duration `json:"read_ns"`
	State policy.State  `json:"state"`
	// Containers maps the addresses of runtimes to their known containers.
	Containers map[string][]container.Container `json:"containers,omitempty"`
}

// saveState saves the State of the policies and the containers for the next
// daemon. read is the uptime at the last snapshot that the policies know.
func saveState(dir string, from proc.FS, read time.Duration, st policy.State, known map[string][]container.Container) error {
	now, err := stampNow(from)
	if err != nil {
		return err
	}
	data, err := printable.Marshal(savedState{stamp: now, Read: read, State: st, Containers: known})
	if err != nil {
		return fmt.Errorf("save the state of the policies: %w", err)
	}
	if err := statedir.WriteFile(filepath.Join(dir, statedir.MemoryFile), data); err != nil {
		return fmt.Errorf("save the state of the policies: %w", err)
	}
	return nil
}

// loadState loads the state that an earlier daemon saved, and deletes the file.
// It ignores a state from before this boot, or older than announcedFor (a minute).
func loadState(dir string, from proc.FS) (r savedState, age time.Duration, ok bool) {
	path := filepath.Join(dir, statedir.MemoryFile)
	data, err := statedir.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return savedState{}, 0, false
	}
	_ = os.Remove(path)
	if err != nil || json.Unmarshal(data, &r) != nil {
		return savedState{}, 0, false
	}
	age, err = r.age(from)
	if err != nil || age > announcedFor {
		return savedState{}, 0, false
	}
	r = printable.Unquote(r, data)
	// Rates depend on the time since the counters were read. The uptime determines
	// that time, because the wall clock may have been set since.
	r.State.Use.At = time.Now().Add(r.Read - r.Uptime - age)
	return r, age, true
}
