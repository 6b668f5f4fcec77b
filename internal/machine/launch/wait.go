package launch

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lingerQuiet is the time that Tenon waits for the command's remaining
	// processes before it prints a message about them.
	lingerQuiet = time.Second
	lingerPoll  = 20 * time.Millisecond
)

// begin makes the gate execute the command. It forwards signals until the
// command runs, because a best-effort command on a busy node may wait long for
// its first CPU time.
func (r *run) begin(gate *gateProcess) (base baseline, err error) {
	begun := make(chan struct{})
	go func() {
		base, err = gate.release()
		close(begun)
	}()
	for {
		select {
		case s := <-r.caught:
			pass(r.process, s)
		case <-begun:
			return base, err
		}
	}
}

// wait forwards signals until the command has ended and its cgroup is empty. It
// returns the result of the command.
func (r *run) wait(started time.Time, base baseline) (Result, error) {
	procs := r.members
	if !r.made {
		procs = func() ([]int, error) { return nil, nil }
	}
	meter := newDelayMeter(r.FS, procs, r.process.Pid, base.thread)
	ended, metered := make(chan struct{}), make(chan struct{})
	go func() {
		awaitZombie(r.process.Pid)
		close(ended)
	}()
	go func() {
		meter.run(ended) // the last sample reads the zombie, so it must come before Wait reaps it
		close(metered)
	}()
	for done := false; !done; {
		select {
		case s := <-r.caught:
			pass(r.process, s)
		case <-metered:
			done = true
		}
	}
	state, err := r.process.Wait()
	if err != nil {
		return Result{Status: 125}, fmt.Errorf("wait for %s: %w", r.Args[0], err)
	}
	result := Result{Name: r.Name, Class: r.Class}
	result.Status, result.Signal = statusOf(state)
	if r.made {
		err = r.linger()
	}
	result.WallSeconds = time.Since(started).Seconds()
	r.account(&result, state.UserTime()+state.SystemTime()-base.cpu, meter.total())
	return result, err
}

// awaitZombie waits until the child has ended, but does not reap it.
func awaitZombie(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// linger waits until the command's remaining processes have ended, because
// without their cgroup they would lose their class. After a signal, it moves
// them into the cgroup of tenon run, prints a message and returns.
func (r *run) linger() error {
	told := time.Now().Add(lingerQuiet)
	for {
		pids, err := r.members()
		if len(pids) == 0 {
			if err = ignoreGone(err); err != nil {
				return fmt.Errorf("look for processes of %s that still run: %w", r.Args[0], err)
			}
			return nil // a group that does not exist is empty
		}
		if !told.IsZero() && time.Now().After(told) {
			told = time.Time{}
			r.Note(fmt.Sprintf("%s has ended; %s that it started still %s in cgroup %s: waiting (Ctrl-C or a signal: the processes continue outside the class)",
				r.Args[0], list(pids), verb(pids, "runs", "run"), r.workload.Cgroup))
		}
		select {
		case s := <-r.caught:
			if s == unix.SIGTSTP {
				_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			}
			if s == unix.SIGWINCH || s == unix.SIGCONT || s == unix.SIGTSTP {
				continue
			}
			r.Note(fmt.Sprintf("%s %s outside the class %s", list(pids), verb(pids, "continues", "continue"), r.Class))
			return r.moveOut()
		case <-time.After(lingerPoll):
		}
	}
}

func verb(pids []int, one, many string) string {
	if len(pids) == 1 {
		return one
	}
	return many
}

// moveOut moves the remaining processes of the run's cgroup into the cgroup of
// this process.
func (r *run) moveOut() error {
	homes, err := r.homes()
	if err != nil {
		return err
	}
	// Processes may fork while they are being moved, so one pass is not enough.
	for range 100 {
		pids, err := r.members()
		if len(pids) == 0 {
			if err = ignoreGone(err); err != nil {
				return fmt.Errorf("look for processes to move out of %s: %w", r.workload.Cgroup, err)
			}
			return nil
		}
		for _, pid := range pids {
			for _, dir := range homes {
				err := os.WriteFile(dir+"/cgroup.procs", fmt.Appendln(nil, pid), 0)
				if err != nil && !errors.Is(err, syscall.ESRCH) {
					return fmt.Errorf("move pid %d out of %s: %w", pid, r.workload.Cgroup, err)
				}
			}
		}
	}
	return fmt.Errorf("move processes out of %s: new ones keep appearing", r.workload.Cgroup)
}
