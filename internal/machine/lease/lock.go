package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/machine/statedir"
)

// acquire locks a file until the returned file is closed or the process ends.
// Other processes can find out who has the lock without taking it (F_OFD_SETLK,
// fcntl(2), Linux 3.15). The file contains the pid of the process, which
// messages show.
func acquire(path string) (*os.File, error) {
	f, err := statedir.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("process %d has it: %w", statedir.Signer(f), ErrHeld)
	} else if err != nil {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	statedir.Sign(f)
	return f, nil
}

// lockHolder returns the pid of the process that has locked a file. If there is
// none, ok is false.
func lockHolder(path string) (pid int, ok bool) {
	f, err := statedir.Open(path, os.O_RDONLY)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return 0, false
	}
	return statedir.Signer(f), true
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
