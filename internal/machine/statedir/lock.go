package statedir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Queue waits for a lock that several processes share: flock(2) on the file at
// Path. It waits in the queue of the kernel. Since Linux 5.0 the kernel serves
// this queue in order of arrival, so no process starves, and a process that
// waits uses no CPU time. The kernel releases the lock of a process that dies. A
// Queue is not safe for concurrent use.
type Queue struct {
	Path string

	left <-chan struct{} // closed when a wait that Lock gave up has ended
}

// Lock waits for the lock, and returns the locked file. Closing the file releases
// the lock. If ctx ends first, Lock returns its cause.
//
// The kernel cannot end a wait early. So a wait that Lock gave up goes on in the
// background, and releases the lock as soon as it has it. There is at most one
// such wait for each Queue.
func (q *Queue) Lock(ctx context.Context) (*os.File, error) {
	if q.left != nil {
		select {
		case <-q.left:
			q.left = nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	for {
		f, err := Open(q.Path, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, err
		}
		if err := q.wait(ctx, f); err != nil {
			return nil, err
		}
		if IsCurrent(f) {
			return f, nil
		}
		_ = f.Close() // another program has removed the file meanwhile
	}
}

// wait locks f. After an error, f is closed, or will be.
func (q *Queue) wait(ctx context.Context, f *os.File) error {
	free, err := TryLock(f)
	if err == nil && !free {
		locked, left := make(chan error, 1), make(chan struct{})
		go func() { locked <- flock(f, unix.LOCK_EX) }()
		select {
		case err = <-locked:
		case <-ctx.Done():
			q.left = left
			go func() {
				<-locked //nolint:errcheck // the file is closed in any case
				_ = f.Close()
				close(left)
			}()
			return context.Cause(ctx)
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return nil
}

// TryLock locks an open file if no other process has its lock.
func TryLock(f *os.File) (locked bool, err error) {
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// flock locks a file, and begins again if a signal has interrupted it.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// IsCurrent reports whether the path of a lock still leads to the locked file. If
// another program has removed the file, other processes would lock a new one.
func IsCurrent(lock *os.File) bool {
	held, err := lock.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(lock.Name())
	return err == nil && os.SameFile(held, now)
}

// SignatureSize is the length, in bytes, of what Sign writes.
const SignatureSize = 11

// Sign writes the id of this process at the beginning of a lock file, for the
// messages of other processes. It ignores errors, because the lock works without
// it, for example on a full file system.
func Sign(lock *os.File) {
	_, _ = lock.WriteAt(fmt.Appendf(nil, "%-*d\n", SignatureSize-1, os.Getpid()), 0)
}

// Signer returns the id of the process that last signed a lock file, or 0 if no
// process has.
func Signer(lock *os.File) int {
	text := make([]byte, SignatureSize)
	n, _ := lock.ReadAt(text, 0) //nolint:errcheck // a shorter file gives its text and io.EOF
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// Holder returns the id of the process that last had the lock at path, or 0 if it
// is unknown.
func Holder(path string) int {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return 0
	}
	defer f.Close()
	return Signer(f)
}
