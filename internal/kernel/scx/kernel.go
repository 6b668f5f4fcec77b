package scx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// name is the scheduler's name in /sys/kernel/sched_ext/root/ops. Some kernels
// append text to it.
const name = "tenon"

// sysfs is the kernel's directory for sched_ext
// (Documentation/scheduler/sched-ext.rst).
const sysfs = "/sys/kernel/sched_ext"

// States of /sys/kernel/sched_ext/state.
const (
	enabled  = "enabled"
	disabled = "disabled"
)

// A schedExtState is the state of sched_ext according to the kernel's files.
type schedExtState struct {
	state string // enabled, disabled, enabling, disabling
	ops   string // the name of the scheduler; "" without one
	// schedulers is the number of schedulers that were loaded since boot, hotplugs
	// is the number of times that CPUs went online or offline, and rejected is the
	// number of threads that sched_ext refused.
	schedulers, hotplugs, rejected uint64
}

func (l schedExtState) ours() bool { return l.ops == name || strings.HasPrefix(l.ops, name+"_") }

// readLoaded reads the files of dir. If the kernel has no sched_ext, the files
// are missing, and it returns ErrUnsupported.
func readLoaded(dir string) (schedExtState, error) {
	var l schedExtState
	for file, into := range map[string]func(string) error{
		"state": set(&l.state), "enable_seq": number(&l.schedulers), "hotplug_seq": number(&l.hotplugs), "nr_rejected": number(&l.rejected),
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		if err == nil {
			err = into(strings.TrimSpace(string(text)))
		}
		if err != nil {
			return schedExtState{}, fmt.Errorf("read the state of sched_ext: %w", err)
		}
	}
	// The file exists only while a scheduler is loaded.
	if ops, err := os.ReadFile(filepath.Join(dir, "root", "ops")); err == nil {
		l.ops = strings.TrimSpace(string(ops))
	}
	return l, nil
}

func set(into *string) func(string) error {
	return func(text string) error {
		*into = text
		return nil
	}
}

func number(into *uint64) func(string) error {
	return func(text string) (err error) {
		*into, err = strconv.ParseUint(text, 10, 64)
		return err
	}
}

// switchEvery runs briefly on each CPU to cause a context switch. Only at a
// switch does the hook learn which thread runs on the CPU. For CPUs that this
// thread may not use, the hook learns the class at a later switch.
func switchEvery(cpus []CPU) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with its changed affinity
		for _, c := range cpus {
			var one unix.CPUSet
			one.Set(int(c.ID))
			if err := unix.SchedSetaffinity(0, &one); err != nil && !errors.Is(err, unix.EINVAL) {
				done <- fmt.Errorf("visit CPU %d: %w", c.ID, err)
				return
			}
		}
		done <- nil
	}()
	return <-done
}
