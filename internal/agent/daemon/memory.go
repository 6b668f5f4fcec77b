package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/runtimes/container"
)

// A savedState is the content of statedir.MemoryFile. Its times are by CLOCK_BOOTTIME, a
// clock that cannot be set and that all processes of a boot share.
type savedState struct {
	Version int           `json:"version"` // of the form
	Boot    string        `json:"boot_id"`
	Uptime  time.Duration `json:"uptime_ns"` // the time of saving
	// Read is the time of the last snapshot, with the counters in State. On a large
	// quiet node it may be ten seconds before the time of saving.
	Read  time.Duration `json:"read_ns"`
	State policy.State  `json:"state"`
	// Containers maps the addresses of runtimes to their known containers.
	Containers map[string][]container.Container `json:"containers,omitempty"`
}

// saveState saves the State of the policies and the containers for the next
// daemon. read is the uptime at the last snapshot that the policies know.
func saveState(dir string, from proc.FS, read time.Duration, st policy.State, known map[string][]container.Container) error {
	boot, err := from.BootID()
	if err != nil {
		return err
	}
	now, err := uptime()
	if err != nil {
		return err
	}
	data, err := printable.Marshal(savedState{Version: statedir.Version, Boot: boot, Uptime: now, Read: read, State: st, Containers: known})
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
	if err != nil || json.Unmarshal(data, &r) != nil || r.Version != statedir.Version {
		return savedState{}, 0, false
	}
	r = printable.Unquote(r, data)
	boot, err := from.BootID()
	if err != nil || boot != r.Boot {
		return savedState{}, 0, false
	}
	now, err := uptime()
	age = now - r.Uptime
	if err != nil || age < 0 || age > announcedFor {
		return savedState{}, 0, false
	}
	// Rates depend on the time since the counters were read. The uptime determines
	// that time, because the wall clock may have been set since.
	r.State.Use.At = time.Now().Add(r.Read - now)
	return r, age, true
}

func uptime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read the boot clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
