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

	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/runtimes/container"
)

// memoryFile is where the policies' State and the containers wait for the
// next daemon.
const memoryFile = "memory.json"

// remembered is a State with the moment at which it was saved, on a clock
// that no one sets and that all processes of a boot share.
type remembered struct {
	Boot   string        `json:"boot_id"`
	Uptime time.Duration `json:"uptime_ns"` // CLOCK_BOOTTIME
	State  policy.State  `json:"state"`
	// Containers are those that were known, by the address of their runtime.
	Containers map[string][]container.Container `json:"containers,omitempty"`
}

// saveState leaves the State and the containers for the next daemon.
func saveState(dir string, from proc.FS, st policy.State, known map[string][]container.Container) error {
	boot, err := from.BootID()
	if err != nil {
		return err
	}
	now, err := uptime()
	if err != nil {
		return err
	}
	data, err := json.Marshal(remembered{Boot: boot, Uptime: now, State: st, Containers: known})
	if err != nil {
		return fmt.Errorf("save the policies' memory: %w", err)
	}
	next := filepath.Join(dir, memoryFile+".next")
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("save the policies' memory: %w", err)
	}
	return os.Rename(next, filepath.Join(dir, memoryFile))
}

// loadState takes what an earlier daemon left, if that is recent enough to
// mean anything: within the time for which a stop is announced. It is taken
// once.
func loadState(dir string, from proc.FS) (r remembered, age time.Duration, ok bool) {
	path := filepath.Join(dir, memoryFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return remembered{}, 0, false
	}
	_ = os.Remove(path)
	if err != nil || json.Unmarshal(data, &r) != nil {
		return remembered{}, 0, false
	}
	boot, err := from.BootID()
	if err != nil || boot != r.Boot {
		return remembered{}, 0, false
	}
	now, err := uptime()
	age = now - r.Uptime
	if err != nil || age < 0 || age > announced {
		return remembered{}, 0, false
	}
	// Rates need the time that passed, and the wall clock may have been set.
	r.State.Use.At = time.Now().Add(-age)
	return r, age, true
}

func uptime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read the boot clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
