package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/schedtrace"
	"tenon.sh/tenon/internal/model/unit"
)

// The programs and cgroups of the guest.
const (
	loadProgram = "/bin/load"
	cgroupRoot  = "/sys/fs/cgroup"
	lsGroup     = cgroupRoot + "/ls"
	beGroup     = cgroupRoot + "/be"
)

const (
	hogLoop = 20000    // loops of a hog between two readings of the clock
	perCPU  = 16 << 20 // bytes of trace buffer for each CPU
)

// A bench runs cases.
type bench struct {
	recorder        *schedtrace.Recorder
	settle, measure time.Duration
	loops           uint64 // number of loops in a millisecond
}

func newBench(ctx context.Context, settle, measure time.Duration) (*bench, error) {
	b := &bench{settle: settle, measure: measure}
	root, err := mountTracefs()
	if err != nil {
		return nil, err
	}
	// The buffer is made once, because making it loads all CPUs.
	if b.recorder, err = schedtrace.Open(root, perCPU); err != nil {
		return nil, err
	}
	if err := makeGroups(); err != nil {
		return nil, err
	}
	if err := calm(); err != nil {
		return nil, err
	}
	return b, b.calibrate(ctx)
}

func makeGroups() error {
	for _, group := range []string{lsGroup, beGroup} {
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// calm waits until the kernel has finished its work after the boot.
func calm() error {
	busy, err := busyTime()
	for begun := now(); err == nil && now() < begun+30*time.Second; {
		time.Sleep(500 * time.Millisecond)
		was := busy
		if busy, err = busyTime(); busy-was < 25*time.Millisecond {
			fmt.Printf("# calm after %.1f s\n", (now() - begun).Seconds())
			return err
		}
	}
	return errors.Join(err, errors.New("the machine does not come to rest"))
}

// busyTime returns the non-idle time of all CPUs (proc_stat(5)).
func busyTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	var ticks time.Duration
	for i, field := range strings.Fields(first)[1:] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %q: %w", first, err)
		}
		if i != 3 && i != 4 && i < 8 { // not idle, not waiting for a disk; guest time is counted twice
			ticks += time.Duration(n)
		}
	}
	return ticks * 10 * time.Millisecond, nil
}

// mountTracefs mounts tracefs, because a bare guest has not mounted it.
func mountTracefs() (string, error) {
	root, err := schedtrace.Root()
	if !errors.Is(err, schedtrace.ErrUnsupported) {
		return root, err
	}
	if err := unix.Mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, ""); err != nil {
		return "", fmt.Errorf("mount tracefs: %w", err)
	}
	return schedtrace.Root()
}

// calibrate measures the speed of a CPU beside two other busy CPUs. This is the
// speed of LS when its siblings are free, because all CPUs of the emulator
// share one stream of instructions.
func (b *bench) calibrate(ctx context.Context) error {
	begin := now()
	others, err := start(ctx, "be", "1,3", strconv.Itoa(hogLoop), nanos(begin), nanos(begin+400*time.Millisecond))
	if err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, loadProgram, "calibrate", "0", "1000000").Output()
	if err != nil {
		return fmt.Errorf("calibrate: %w", err)
	}
	if b.loops, err = strconv.ParseUint(strings.TrimSpace(string(output)), 10, 64); err != nil {
		return fmt.Errorf("calibrate: %w", err)
	}
	fmt.Printf("# a millisecond is %d loops\n", b.loops)
	_, err = others.wait()
	return err
}

// loopsFor returns the number of loops in a burst.
func (b *bench) loopsFor(d time.Duration) string {
	return strconv.FormatUint(b.loops*uint64(d)/uint64(time.Millisecond), 10)
}

// A load is a running load program.
type load struct {
	args   []string
	cmd    *exec.Cmd
	output strings.Builder
}

func start(ctx context.Context, args ...string) (*load, error) {
	l := &load{args: args, cmd: exec.CommandContext(ctx, loadProgram, args...)}
	l.cmd.Stdout, l.cmd.Stderr = &l.output, os.Stderr
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the load %q: %w", args, err)
	}
	return l, nil
}

// wait returns the lines that the workers printed.
func (l *load) wait() ([]json.RawMessage, error) {
	if err := l.cmd.Wait(); err != nil {
		return nil, fmt.Errorf("load %q: %w", l.args, err)
	}
	var lines []json.RawMessage
	for line := range strings.Lines(l.output.String()) {
		lines = append(lines, json.RawMessage(strings.TrimSpace(line)))
	}
	return lines, nil
}

// now returns the time on the clock of the trace and of the load.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // cannot happen, because the clock always exists
	}
	return time.Duration(ts.Nano())
}

func sleepUntil(at time.Duration) { time.Sleep(at - now()) }

func nanos(d time.Duration) string { return strconv.FormatInt(int64(d), 10) }

// cores maps each CPU to its core.
func cores() (map[unit.CPU]int, error) {
	dirs, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
	if err != nil {
		return nil, err
	}
	cores := map[unit.CPU]int{}
	for _, file := range dirs {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		siblings, err := unit.ParseCPUSet(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		var first unit.CPU = -1
		for cpu := range siblings.All() {
			if first < 0 {
				first = cpu
			}
			cores[cpu] = int(first)
		}
	}
	return cores, nil
}

// classOf recognises the workers of the load by their names.
func classOf(t schedtrace.Thread) schedtrace.Class {
	switch t.Comm {
	case "load-ls":
		return schedtrace.LS
	case "load-be":
		return schedtrace.BE
	}
	return schedtrace.Other
}

func write(file, value string) error {
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		return fmt.Errorf("write %s %q: %w", file, value, err)
	}
	return nil
}
