package lease

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/task"
)

// Guard starts the command as the watchdog of the lease in dir, if none guards
// it, and reports whether it did. The command gets a session of its own and
// outlives its parent; unless told otherwise its output goes nowhere and it
// runs in the root directory. Several may be started at the same moment: all
// but one find the lease guarded and end.
func Guard(dir string, cmd *exec.Cmd) (started bool, err error) {
	if _, guarded := Guarded(dir); guarded {
		return false, nil
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start the watchdog: %w", err)
	}
	go func() { _ = cmd.Wait() }() // no zombie is left
	return true, nil
}

// runaway is the CPU time that a watchdog with real-time priority may use
// without ever sleeping, before the kernel ends it: a fault of ours must not
// keep a CPU from others.
const runaway = 2 * time.Second

// Steady prepares this process to act when everything else starves: the OOM
// killer spares it, it runs before every fair task (SCHED_FIFO, which no weight
// or quota of a cgroup holds back; nice -20 where the cgroup has no real-time
// budget), its memory is never reclaimed, and it uses one CPU. Only the
// watchdog process calls it. The error lists what the kernel refused; the
// watchdog works without.
func Steady() error {
	runtime.GOMAXPROCS(1)
	var errs []error
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		errs = append(errs, fmt.Errorf("be spared by the OOM killer: %w", err))
	}
	limit := unix.Rlimit{Cur: uint64(runaway.Microseconds()), Max: uint64(runaway.Microseconds())}
	err := unix.Setrlimit(unix.RLIMIT_RTTIME, &limit)
	if err == nil {
		err = eachThread(func(tid int) error { return task.SetAttr(tid, task.SchedAttr{Policy: task.FIFO, Priority: 1}) })
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("get real-time priority: %w", err))
		if err := eachThread(func(tid int) error { return task.SetAttr(tid, task.SchedAttr{Nice: -20}) }); err != nil {
			errs = append(errs, err)
		}
	}
	// MCL_ONFAULT (Linux 4.4) locks only pages that were touched: the runtime
	// reserves far more than it uses.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		errs = append(errs, fmt.Errorf("lock the memory: %w", err))
	}
	return errors.Join(errs...)
}

// eachThread calls a function for every thread of this process. The runtime may
// start a thread meanwhile, from a thread that was not changed yet, so
// eachThread lists the threads again until there is no new one. New threads
// inherit the change.
func eachThread(do func(tid int) error) error {
	done := map[int]bool{}
	for {
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		before := len(done)
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || done[tid] {
				continue
			}
			if err := do(tid); err != nil && !errors.Is(err, task.ErrGone) {
				return err
			}
			done[tid] = true
		}
		if len(done) == before {
			return nil
		}
	}
}
