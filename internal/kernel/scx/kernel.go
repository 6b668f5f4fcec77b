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

// name is the scheduler's name. Some kernels append text to it in
// /sys/kernel/sched_ext/root/ops.
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
	// These are numbers since boot: schedulers that were loaded, changes of a
	// CPU to online or offline (hotplugs), and threads that sched_ext refused
	// (rejected).
	schedulers, hotplugs, rejected uint64
}

func (l schedExtState) ours() bool { return l.ops == name || strings.HasPrefix(l.ops, name+"_") }

// readLoaded reads the files of dir. It returns ErrUnsupported if they are
// missing, because the kernel then has no sched_ext.
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

// switchEvery runs briefly on each CPU to cause a context switch. The hook
// learns only at a switch which thread runs on the CPU. On CPUs that this
// thread may not use, the hook learns it at a later switch.
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
