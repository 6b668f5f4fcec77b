// Package lease is the dead-man's switch: the agent renews a lease on tmpfs,
// and when it expires a tiny watchdog narrows best-effort work to a safe
// bound. The bounds stand in the lease, so the watchdog needs nothing of an
// agent that is dead, hung or stopped.
//
// Deadlines are on CLOCK_MONOTONIC. The wall clock may jump, and the time in
// which the machine sleeps (CLOCK_BOOTTIME counts it) is time in which neither
// the agent could renew nor best-effort work could run. The boot id in the
// lease voids one that a /run on disk has kept.
//
// Nothing watches for the end of the agent's process: a crashed agent that is
// started again within the lease is no loss, and one that only hangs never
// ends.
package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// TTL is how long a renewal holds. With the time that the watchdog needs
	// to wake up and write, best-effort work is within its bounds 2 s after
	// the agent's last word.
	TTL = 1500 * time.Millisecond
	// Renewal is how often the agent renews: two may be late.
	Renewal = 500 * time.Millisecond
	// MaxAnnounce is the longest lease that a stopping agent can leave. A
	// deadline that is further away is not believed.
	MaxAnnounce = 10 * time.Minute
)

// ErrHeld means that a living process holds the lease, or guards it already.
var ErrHeld = errors.New("already held")

// ErrLost means that the lease was taken away, as Disarm does: the holder must
// stop writing.
var ErrLost = errors.New("the lease was taken away")

// A Holder is the process that renews a lease: its pid, and its start time in
// nanoseconds after boot as in /proc/PID/stat. Together they are never reused.
type Holder struct {
	PID   int
	Start int64
}

// A Lease is held by one process, for as long as that lives or until Close. It
// is safe for concurrent use.
type Lease struct {
	dir   string
	clock func() time.Duration
	lock  *os.File

	mu     sync.Mutex
	file   *os.File
	head   head
	bounds []Bound
	line   []byte // a buffer for the head
}

// Hold takes the lease in dir, which should be on tmpfs, for the process self
// on the given boot. A living process that holds it is refused with ErrHeld,
// whatever state it is in. From a holder that is gone the bounds and the
// deadline are kept until the first Renew: within an announced lease nothing
// is narrowed, and an agent that dies before it has renewed once has not
// prolonged anything.
func Hold(dir, boot string, self Holder) (*Lease, error) {
	return hold(dir, boot, self, monotonic)
}

func hold(dir, boot string, self Holder, clock func() time.Duration) (*Lease, error) {
	if boot == "" || len(boot) > bootWidth || strings.ContainsAny(boot, " \t\n") {
		return nil, fmt.Errorf("hold the lease in %s: boot id %q: want one word of at most %d bytes", dir, boot, bootWidth)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("hold the lease: %w", err)
	}
	lock, err := acquire(filepath.Join(dir, leaseLock))
	if err != nil {
		return nil, fmt.Errorf("hold the lease in %s: %w", dir, err)
	}
	l := &Lease{dir: dir, clock: clock, lock: lock}
	h := head{boot: boot, holder: self, deadline: clock() + TTL}
	var bounds []Bound
	if old, err := read(dir, content{}); err == nil && old.head.boot == boot {
		h.deadline, h.announced, bounds = old.head.deadline, old.head.announced, old.bounds
	}
	if err := l.replace(h, bounds); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("hold the lease: %w", err)
	}
	return l, nil
}

// Renew reports that the holder is well, and which bounds hold if it dies. The
// loop must call it once a tick, before its writes: ErrLost means that another
// process has taken the lease, and that this one must not write any more. As
// long as the bounds do not change, Renew costs two system calls and no space;
// so the reasons of the bounds should not contain values that change with each
// tick.
//
// If new bounds cannot be written (tmpfs is full), Renew renews the lease with
// the old bounds, and the error says so: the holder must not widen a knob whose
// bound it could not write.
func (l *Lease) Renew(bounds []Bound) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.head
	h.deadline, h.announced = l.clock()+TTL, false
	err := l.check()
	if errors.Is(err, ErrLost) && l.swept() {
		return l.again(h, bounds)
	}
	if err != nil {
		return fmt.Errorf("renew the lease in %s: %w", l.dir, err)
	}
	if !slices.Equal(bounds, l.bounds) {
		if err = l.replace(h, bounds); err == nil {
			return nil
		}
	}
	if err = errors.Join(err, l.rewrite(h)); err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	return nil
}

// Expired reports whether the lease has run out since the last renewal. The
// watchdog may have written then, so the holder must read all knobs again.
func (l *Lease) Expired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock() >= l.head.deadline
}

// Announce leaves the lease to the next holder for d, at most MaxAnnounce: the
// present holder is about to stop and expects to be replaced. It needs no
// space.
func (l *Lease) Announce(d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d < 0 || d > MaxAnnounce {
		return fmt.Errorf("announce a stop for %v: want at most %v", d, MaxAnnounce)
	}
	h := l.head
	h.deadline, h.announced = l.clock()+d, true
	if err := errors.Join(l.check(), l.rewrite(h)); err != nil {
		return fmt.Errorf("announce a stop for %v in the lease in %s: %w", d, l.dir, err)
	}
	return nil
}

// Drop ends the lease: there is nothing left to guard, and the watchdog ends.
// A lease that was taken away is no error.
func (l *Lease) Drop() error {
	l.mu.Lock()
	err := l.check()
	if err == nil {
		err = os.Remove(filepath.Join(l.dir, leaseFile))
	} else if errors.Is(err, ErrLost) {
		err = nil
	}
	l.mu.Unlock()
	if err = errors.Join(err, l.Close()); err != nil {
		return fmt.Errorf("drop the lease: %w", err)
	}
	return nil
}

// Close lets another process hold the lease. What stands in it stays, and
// runs out unless that process renews it.
func (l *Lease) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.file.Close(), l.lock.Close())
}

// check fails with ErrLost if the file has been removed or replaced.
func (l *Lease) check() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", l.file.Name(), err)
	}
	if st.Nlink == 0 {
		return ErrLost
	}
	return nil
}

// swept reports that another program has removed the directory, or all that is
// in it. Disarm removes the lease alone, and leaves its lock.
func (l *Lease) swept() bool { return !stands(l.lock) }

// again makes the directory, the lock and the lease anew. Without them the
// watchdog would end, and no agent or command would know that this node is
// managed. A process that has taken the new lock keeps it: that is ErrLost.
func (l *Lease) again(h head, bounds []Bound) error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return fmt.Errorf("renew the lease, whose directory was removed: %w", err)
	}
	lock, err := acquire(filepath.Join(l.dir, leaseLock))
	if errors.Is(err, ErrHeld) {
		return fmt.Errorf("renew the lease in %s, which was removed and is held again: %w", l.dir, ErrLost)
	}
	if err != nil {
		return fmt.Errorf("renew the lease, whose directory was removed: %w", err)
	}
	_ = l.lock.Close()
	l.lock = lock
	if err := l.replace(h, bounds); err != nil {
		return fmt.Errorf("renew the lease, whose directory was removed: %w", err)
	}
	return nil
}

// rewrite writes the head in place. Its width never changes, so this needs no
// space on a full file system, and a reader at the same moment finds the check
// sum wrong and reads again.
func (l *Lease) rewrite(h head) error {
	l.line = h.append(l.line[:0])
	if _, err := l.file.WriteAt(l.line, 0); err != nil {
		return err
	}
	l.head = h
	return nil
}

// replace writes the whole lease, in one rename.
func (l *Lease) replace(h head, bounds []Bound) error {
	body, err := encode(bounds)
	if err != nil {
		return err
	}
	h.body = sumOf(body)
	next := filepath.Join(l.dir, leaseFile+".next")
	f, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(h.append(nil), body...))
	if err == nil {
		err = os.Rename(next, filepath.Join(l.dir, leaseFile))
	}
	if err != nil {
		// The rest of the file may be the very thing that fills the file
		// system.
		return errors.Join(err, f.Close(), os.Remove(next))
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.head, l.bounds = f, h, slices.Clone(bounds)
	return nil
}

// monotonic is the clock of all deadlines, the same for all processes of a
// boot that share a time namespace. The clock always exists.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}
