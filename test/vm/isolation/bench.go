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
	"tenon.sh/tenon/internal/kernel/scx"
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

// A bench runs cases (a scene, a mode and a length of LS work).
type bench struct {
	recorder        *schedtrace.Recorder
	settle, measure time.Duration
	around          time.Duration           // time that is also recorded, before and after the judged time
	loops           uint64                  // number of loops in a millisecond
	schedulers      map[bool]*scx.Scheduler // the schedulers that attach has loaded, by smtRule
}

// newBench prepares the machine. It measures the speed of CPU 0 while the CPUs
// in the list busy are busy, too.
func newBench(ctx context.Context, settle, measure time.Duration, busy string) (*bench, error) {
	// The kernel needs some time to drop the last trace.
	b := &bench{settle: settle, measure: measure, around: 200 * time.Millisecond, schedulers: map[bool]*scx.Scheduler{}}
	root, err := mountTracefs()
	if err != nil {
		return nil, err
	}
	// Make the buffer only once, because that loads all CPUs.
	if b.recorder, err = schedtrace.Open(root, perCPU); err != nil {
		return nil, err
	}
	if err := makeGroups(); err != nil {
		return nil, err
	}
	if err := awaitCalm(); err != nil {
		return nil, err
	}
	return b, b.calibrate(ctx, busy)
}

// attach returns the attached scheduler. It loads the scheduler only once,
// because the emulated kernel takes ten seconds to verify it. Later calls only
// attach it again.
func (b *bench) attach(smtRule bool) (*scx.Scheduler, error) {
	if s := b.schedulers[smtRule]; s != nil {
		return s, s.Attach()
	}
	s, err := loadScheduler(smtRule, bothGroups)
	if err == nil {
		b.schedulers[smtRule] = s
	}
	return s, err
}

func (b *bench) close() error {
	err := b.recorder.Close()
	for _, s := range b.schedulers {
		err = errors.Join(err, s.Close())
	}
	return err
}

func makeGroups() error {
	for _, group := range []string{lsGroup, beGroup} {
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// awaitCalm waits until the kernel's work after the boot is done.
func awaitCalm() error {
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

// busyTime returns the time, summed over all CPUs, in which they were not idle (proc_stat(5)).
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
		if i != 3 && i != 4 && i < 8 { // not idle, not iowait; guest time is counted twice
			ticks += time.Duration(n)
		}
	}
	return ticks * 10 * time.Millisecond, nil
}

// mountTracefs mounts tracefs if the guest has not mounted it.
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

// calibrate measures the speed of CPU 0 while the CPUs in busy are busy. All CPUs of the emulator
// share one stream of instructions, so they slow each other down.
func (b *bench) calibrate(ctx context.Context, busy string) error {
	begin := now()
	others, err := start(ctx, "be", busy, strconv.Itoa(hogLoop), nanos(begin), nanos(begin+400*time.Millisecond))
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

// loopsFor returns how many loops take the given time.
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

// now returns the present time on the clock of the trace and of the loads.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // cannot happen, because the clock always exists
	}
	return time.Duration(ts.Nano())
}

func sleepUntil(at time.Duration) { time.Sleep(at - now()) }

func nanos(d time.Duration) string { return strconv.FormatInt(int64(d), 10) }

// cores maps each CPU to its core. A core has the number of its first CPU.
func cores() (map[unit.CPU]int, error) { return firstOf("topology/thread_siblings_list") }

// firstOf maps each CPU to the first CPU of a list, which is a file in the
// CPU's directory in sysfs.
func firstOf(list string) (map[unit.CPU]int, error) {
	const dir = "/sys/devices/system/cpu/cpu"
	files, err := filepath.Glob(dir + "[0-9]*/" + list)
	if err != nil {
		return nil, err
	}
	firsts := map[unit.CPU]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		cpus, err := unit.ParseCPUSet(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		number, _, _ := strings.Cut(strings.TrimPrefix(file, dir), "/")
		cpu, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for first := range cpus.All() {
			firsts[unit.CPU(cpu)] = int(first)
			break
		}
	}
	return firsts, nil
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
