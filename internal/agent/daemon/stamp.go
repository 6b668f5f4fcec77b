package daemon

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
)

// A stamp says which form a saved state has, and when it was saved, by CLOCK_BOOTTIME: a
// clock that cannot be set and that all processes of a boot share.
type stamp struct {
	Version int           `json:"version"` // of the form
	Boot    string        `json:"boot_id"`
	Uptime  time.Duration `json:"uptime_ns"`
}

// The reasons why age refuses a saved state.
var (
	errOtherForm = errors.New("another release of Tenon wrote it")
	errOtherBoot = errors.New("it is from before the machine started")
)

// stampNow returns the stamp of a state that is saved now.
func stampNow(from proc.FS) (stamp, error) {
	boot, err := from.BootID()
	if err != nil {
		return stamp{}, err
	}
	now, err := uptime()
	return stamp{statedir.Version, boot, now}, err
}

// age returns how long ago a state was saved. It is an error if the state has another form
// or is from another boot.
func (s stamp) age(from proc.FS) (time.Duration, error) {
	now, err := stampNow(from)
	switch {
	case err != nil:
		return 0, err
	case s.Version != now.Version:
		return 0, fmt.Errorf("%w: its form has version %d, want %d", errOtherForm, s.Version, now.Version)
	case s.Boot != now.Boot || s.Uptime > now.Uptime:
		return 0, errOtherBoot
	}
	return now.Uptime - s.Uptime, nil
}

func uptime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read the boot clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
