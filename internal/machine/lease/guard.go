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

// Guard starts cmd as the watchdog of the lease in dir, if there is none yet,
// and reports whether it started one. The process has its own session and
// outlives its parent. Unless cmd sets them, it has no output, and the root as
// its working directory. If several watchdogs start at the same time, all but
// one end.
func Guard(dir string, cmd *exec.Cmd) (started bool, err error) {
	if _, guarded := IsGuarded(dir); guarded {
		return false, nil
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start the watchdog: %w", err)
	}
	go func() { _ = cmd.Wait() }() // reaps the process
	return true, nil
}

// runaway is the CPU time that a watchdog with real-time priority may use
// without a sleep. After that, the kernel ends the watchdog, so that a mistake
// in it cannot block a CPU.
const runaway = 2 * time.Second

// Steady prepares the watchdog process to run when other processes get no
// resources. The OOM killer spares it, its memory is locked, and it uses one
// CPU. It gets the policy SCHED_FIFO, which no cgroup weight or quota limits.
// If its cgroup has no real-time budget, it gets nice -20 instead. The error
// lists what the kernel refused. The watchdog also works without that.
func Steady() error {
	runtime.GOMAXPROCS(1)
	var errs []error
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		errs = append(errs, fmt.Errorf("exempt the process from the OOM killer: %w", err))
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
	// MCL_ONFAULT (Linux 4.4) locks only used pages. The Go runtime reserves
	// far more than it uses.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		errs = append(errs, fmt.Errorf("lock the memory: %w", err))
	}
	return errors.Join(errs...)
}

// eachThread calls do for every thread of this process. While it does so, a
// thread may start another one. Children of a changed thread inherit the
// change, but those of other threads do not. So eachThread lists the threads
// until there is no new one.
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
