package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// acquire locks a file until the returned file is closed or the process ends.
// Other processes can find out who has the lock without taking it (F_OFD_SETLK,
// fcntl(2), Linux 3.15). The file contains the pid of the process, which
// messages show.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	_ = f.Chmod(0o600) // an older version made the file readable by all
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("process %d has it: %w", pidIn(f), ErrHeld)
	} else if err != nil {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	// On a full file system the pid cannot be written, but the lock works.
	_, _ = f.WriteAt(fmt.Appendf(nil, "%-10d\n", os.Getpid()), 0)
	return f, nil
}

// isCurrent reports whether the path of a lock still leads to the locked file. If
// another program has removed the file, other processes would lock a new one.
func isCurrent(lock *os.File) bool {
	held, err := lock.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(lock.Name())
	return err == nil && os.SameFile(held, now)
}

// lockHolder returns the pid of the process that has locked a file. If there is
// none, ok is false.
func lockHolder(path string) (pid int, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return 0, false
	}
	return pidIn(f), true
}

// pidIn returns the pid in a lock file, or 0 if there is none.
func pidIn(f *os.File) int {
	text := make([]byte, noteAt)
	n, _ := f.ReadAt(text, 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	return pid
}

// Exists reports whether there is a lease in dir, held or not.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, leaseFile))
	return err == nil
}

// IsHeld reports whether a living process holds the lease in dir, and returns
// the pid of that process.
func IsHeld(dir string) (pid int, ok bool) { return lockHolder(filepath.Join(dir, leaseLock)) }

// IsGuarded reports whether a watchdog guards the lease in dir, and returns the
// watchdog's pid. The watchdog may be about to end, so a holder must call
// IsGuarded again from time to time.
func IsGuarded(dir string) (pid int, ok bool) { return lockHolder(filepath.Join(dir, watchdogLock)) }

// Disarm removes the lease in dir, whichever process holds it. It waits until
// the watchdog has ended, which otherwise could overwrite what the caller
// writes later. If the holder is alive, its next Renew fails. ctx limits the
// wait.
func Disarm(ctx context.Context, dir string) error {
	const poll = 20 * time.Millisecond
	for {
		if err := os.Remove(filepath.Join(dir, leaseFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the lease: %w", err)
		}
		pid, guarded := IsGuarded(dir)
		if !guarded {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the lease in %s is gone, but its watchdog, process %d, still runs: %w", dir, pid, ctx.Err())
		case <-time.After(poll):
		}
	}
}
