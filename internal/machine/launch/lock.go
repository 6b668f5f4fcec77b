package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
)

// lockName returns the name of the lock file of a class. Commands of different
// classes have different parent cgroups, so a latency-sensitive command does not
// wait for best-effort ones.
func lockName(c node.Class) string {
	if c == node.BE {
		return "launch.lock"
	}
	return "launch-ls.lock"
}

// lockQuiet is the time that a launcher waits for the lock before it prints a
// message.
const lockQuiet = 30 * time.Second

// An interruption is the error of a wait that a signal has ended.
type interruption struct{ syscall.Signal }

func (i interruption) Error() string {
	return fmt.Sprintf("%s ended the wait for another tenon run", unix.SignalName(i.Signal))
}

// lock lets only one launcher of a class create or remove cgroups at a time.
// Otherwise a launcher could remove a parent cgroup that another launcher needs.
// It waits until the lock is free. A signal ends the wait, but not in the first
// time of it, for which the argument is deaf: the signal may have been meant for
// the command.
func (r *run) lock(ctx context.Context, deaf time.Duration) (unlock func(), err error) {
	if err := statedir.Make(r.StateDir); err != nil {
		return nil, err
	}
	path := filepath.Join(r.StateDir, lockName(r.Class))
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var f *os.File
	done := make(chan struct{})
	go func() {
		q := statedir.Queue{Path: path}
		f, err = q.Lock(ctx)
		close(done)
	}()
	begun, quiet := time.Now(), time.After(lockQuiet)
	for {
		select {
		case <-done:
			if err != nil {
				return nil, fmt.Errorf("wait for the launch lock: %w", err)
			}
			statedir.Sign(f)
			return func() { _ = f.Close() }, nil
		case s := <-r.caught:
			switch {
			case s == unix.SIGTSTP:
				_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			case s == unix.SIGWINCH || s == unix.SIGCONT || time.Since(begun) < deaf:
			default:
				number, _ := s.(syscall.Signal)
				giveUp(interruption{number})
			}
		case <-quiet:
			holder := "another tenon run"
			if pid := statedir.Holder(path); pid != 0 {
				holder += fmt.Sprintf(" (process %d)", pid)
			}
			r.Note(fmt.Sprintf("has waited %v for %s, which starts or ends a command: waiting on (Ctrl-C or a signal ends the wait)", lockQuiet, holder))
		}
	}
}
