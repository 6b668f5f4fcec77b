package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/schedtrace"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// traceLength is the time for which a run records the events of the
	// scheduler.
	traceLength = time.Second
	// traceBuffer is large enough for one CPU at 100 000 switches per second.
	traceBuffer = unit.Bytes(12 << 20)
	// switchTolerance is the time for which LS must have run before a start of
	// BE on the sibling counts. If LS has run for less, the two CPUs switched at
	// about the same time.
	switchTolerance = 20 * time.Microsecond
)

// trace sends the load once more. It records the events of the kernel's
// scheduler on the tested CPUs.
func (st *runSetUp) trace(ctx context.Context, block int) (_ *colocation.Traced, err error) {
	root, unmount, err := tracefs()
	if err != nil {
		return nil, err
	}
	defer unmount()
	sweepTraces(root)
	recorder, err := schedtrace.Open(root, traceBuffer)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, recorder.Close()) }()
	classes := map[int]schedtrace.Class{}
	if err := st.classify(classes); err != nil {
		return nil, err
	}
	order := st.b.load.WithLength(block, traceLength)
	order.Warmup = 200 * time.Millisecond
	if err := recorder.Start(); err != nil {
		return nil, err
	}
	m, err := measure(ctx, st, order)
	events, stopErr := recorder.Stop()
	if err = errors.Join(err, stopErr); err != nil {
		return nil, err
	}
	if err := st.classify(classes); err != nil { // threads that began in the meantime
		return nil, err
	}
	rules := schedtrace.Rules{
		Cores: map[unit.CPU]int{}, Epsilon: switchTolerance, From: sinceBoot(m.From), To: sinceBoot(m.To),
		ClassOf: func(t schedtrace.Thread) schedtrace.Class { return classes[t.TID] },
	}
	for _, c := range st.b.Topology.CPUs {
		if st.b.Place.Tested.Has(c.ID) {
			rules.Cores[c.ID] = int(c.Core)
		}
	}
	verdict, err := schedtrace.Judge(events, rules)
	if err != nil {
		return nil, err
	}
	return tracedOf(verdict), nil
}

// tracefs returns the root of tracefs, and a function that releases it. If
// tracefs is not mounted, it makes a mount that has no path. Only this process
// sees this mount, and the mount ends with the process (fsmount(2)).
func tracefs() (root string, unmount func(), err error) {
	root, err = schedtrace.Root()
	if err == nil || !errors.Is(err, schedtrace.ErrUnsupported) {
		return root, func() {}, err
	}
	system, openErr := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if openErr != nil {
		return "", nil, fmt.Errorf("%w, and cannot be: %w", err, openErr)
	}
	defer unix.Close(system)
	if err := unix.FsconfigCreate(system); err != nil {
		return "", nil, fmt.Errorf("mount tracefs: %w", err)
	}
	mount, err := unix.Fsmount(system, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("mount tracefs: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", mount), func() { _ = unix.Close(mount) }, nil
}

// sinceBoot converts a time to the clock of the trace.
func sinceBoot(t time.Time) time.Duration { return testbed.MonotonicNow() - time.Since(t) }

// tracedOf returns the part of a trace report that the result shows.
func tracedOf(v schedtrace.Report) *colocation.Traced {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return &colocation.Traced{
		Length: v.To - v.From, LSTime: v.LSTime, BETime: v.BETime, Beside: v.BesideTime, Starts: v.BEStartsBesideLS,
		Wakes: v.LSWake.Count, WakeP50: us(v.LSWake.P50), WakeP90: us(v.LSWake.P90), WakeP99: us(v.LSWake.P99),
	}
}

// classify records the class of each thread that exists now.
func (st *runSetUp) classify(classes map[int]schedtrace.Class) error {
	for class, group := range map[schedtrace.Class]node.CgroupPath{schedtrace.LS: st.pods.NGINX(), schedtrace.BE: st.pods.JobGroup()} {
		pids, err := st.b.Tree.Procs(string(group))
		if err != nil {
			return fmt.Errorf("list the threads of %s: %w", group, err)
		}
		for _, pid := range pids {
			threads, err := st.b.FS.Threads(pid)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("list the threads of %s: %w", group, err)
			}
			for _, tid := range threads {
				classes[tid] = class
			}
		}
	}
	return nil
}

// sweepTraces removes the trace instances of labs that were killed.
func sweepTraces(root string) {
	dirs, _ := filepath.Glob(filepath.Join(root, "instances", "tenon-*")) //nolint:errcheck // the pattern is valid
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "tenon-"))
		if err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = unix.Rmdir(dir)
		}
	}
}
