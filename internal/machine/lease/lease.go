// Package lease bounds best-effort work while no agent runs, by a lease and a
// watchdog. The agent renews a lease file on tmpfs. When the lease expires, a
// small watchdog process narrows best-effort work to its safe bound. The lease
// contains the bounds, so that the watchdog needs no answer from the agent.
//
// Deadlines are on CLOCK_MONOTONIC, because the wall clock may jump. Unlike
// CLOCK_BOOTTIME, this clock stops while the machine sleeps. In that time the
// agent cannot renew the lease, and best-effort work does not run. The lease
// contains the boot id, because /run may be on disk: a lease from an earlier
// boot is void.
//
// The watchdog watches the lease, not the process of the agent. So a crash does
// no harm if the agent restarts before the lease expires. And an agent that
// hangs, although its process lives, loses its lease.
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

	"tenon.sh/tenon/internal/machine/statedir"
)

const (
	// TTL is the time from a renewal to the expiry of the lease. The watchdog
	// then needs some time to wake up and write. So best-effort work is within
	// its bounds 2 s after the last renewal.
	TTL = 1500 * time.Millisecond
	// Renewal is the time between two renewals by the agent. Two renewals in a
	// row may fail before the lease expires.
	Renewal = 500 * time.Millisecond
	// MaxAnnounce is the longest time by which an agent that stops may prolong
	// its lease. Readers ignore a deadline that is further away.
	MaxAnnounce = 10 * time.Minute
)

// ErrHeld means that another living process already has the lock: that of the
// lease, of its watchdog, or of the machine.
var ErrHeld = errors.New("already held")

// ErrLost means that another process has removed or replaced the lease, for
// example with Disarm. The former holder must not write knobs any more.
var ErrLost = errors.New("the lease was taken away")

// ErrOldBounds means that the lease was prolonged, but the new bounds could not be
// written, usually because the file system is full. The old bounds apply.
var ErrOldBounds = errors.New("prolonged with the old bounds")

// A Holder identifies the process that renews a lease: its pid and its start
// time in nanoseconds after boot (/proc/PID/stat). Together they are unique.
type Holder struct {
	PID   int
	Start int64
}

// A Lease is the lease of this process, until Close or the end of the process.
// It is safe for concurrent use.
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

// Hold takes the lease in dir, which should be on tmpfs. self is this process,
// and boot is the boot id. Hold returns ErrHeld while another process holds the
// lease, even if that process is stopped. Hold does not prolong an existing
// lease: the bounds and the deadline of the last holder apply until the first
// Renew. So an announced deadline stays valid, and an agent that dies before
// its first Renew does not delay the watchdog. An existing lease of this boot needs
// no space on a full file system.
func Hold(dir, boot string, self Holder) (*Lease, error) {
	return hold(dir, boot, self, monotonic)
}

func hold(dir, boot string, self Holder, clock func() time.Duration) (*Lease, error) {
	if boot == "" || len(boot) > bootWidth || strings.ContainsAny(boot, " \t\n") {
		return nil, fmt.Errorf("hold the lease in %s: boot id %q: want one word of at most %d bytes", dir, boot, bootWidth)
	}
	if err := statedir.Make(dir); err != nil {
		return nil, fmt.Errorf("hold the lease: %w", err)
	}
	lock, err := acquire(filepath.Join(dir, leaseLock))
	if err != nil {
		return nil, fmt.Errorf("hold the lease in %s: %w", dir, err)
	}
	l := &Lease{dir: dir, clock: clock, lock: lock}
	h := head{boot: boot, holder: self, deadline: clock() + TTL}
	old, err := read(dir, content{})
	follows := err == nil && old.head.boot == boot
	if follows {
		h.deadline, h.announced, h.body = old.head.deadline, old.head.announced, old.head.body
	} else {
		old.bounds = nil
	}
	if err = l.replace(h, old.bounds); err != nil && follows {
		// A restart must not fail because the file system is full.
		err = l.adopt(h, old.bounds)
	}
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("hold the lease: %w", err)
	}
	return l, nil
}

// Renew prolongs the lease, and sets the bounds that apply if the holder dies.
// The loop must call it in each tick before it writes. After ErrLost this
// process must not write any more, because another process has taken the lease.
// If the bounds are the same as before, Renew needs only two system calls and
// no space. So the reasons of bounds should not contain values that change in
// each tick.
//
// On a full tmpfs, Renew cannot write new bounds. It then prolongs the lease
// with the old bounds and returns ErrOldBounds. The holder must not widen a knob
// whose new bound was not written.
func (l *Lease) Renew(bounds []Bound) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.head
	h.deadline, h.announced = l.clock()+TTL, false
	err := l.check()
	if (err == nil || errors.Is(err, ErrLost)) && l.lockRemoved() {
		return l.recreate(h, bounds)
	}
	if err != nil {
		return fmt.Errorf("renew the lease in %s: %w", l.dir, err)
	}
	if !slices.Equal(bounds, l.bounds) {
		if err = l.replace(h, bounds); err == nil {
			return nil
		}
		err = fmt.Errorf("%w: %w", ErrOldBounds, err)
	}
	if failed := l.rewrite(h); failed != nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	return nil
}

// HasExpired reports whether the lease has expired since the last renewal. The
// watchdog may then have written knobs, so the holder must read all knobs
// again.
func (l *Lease) HasExpired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock() >= l.head.deadline
}

// Announce prolongs the lease by d, at most by MaxAnnounce. The holder calls it
// when it is about to stop and another holder will follow. It also works on a
// full file system.
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

// Drop removes the lease. Call it when no knob needs a bound any more. The watchdog
// then ends. If another process has already removed the lease, Drop returns nil.
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

// Close lets another process take the lease. The lease file stays. It expires
// unless another process renews it.
func (l *Lease) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.file.Close(), l.lock.Close())
}

// check returns ErrLost if the lease file has been removed or replaced.
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

// lockRemoved reports whether another program has removed the lock file or the
// whole directory. (Disarm removes only the lease file, not the lock.)
func (l *Lease) lockRemoved() bool { return !statedir.IsCurrent(l.lock) }

// recreate creates the directory, the lock and the lease again. Without them,
// the watchdog would end, and other agents and commands would not see that
// Tenon manages this node. It returns ErrLost if another process has taken the
// new lock.
func (l *Lease) recreate(h head, bounds []Bound) error {
	if err := statedir.Make(l.dir); err != nil {
		return fmt.Errorf("renew the lease, whose directory was removed: %w", err)
	}
	lock, err := acquire(filepath.Join(l.dir, leaseLock))
	if errors.Is(err, ErrHeld) {
		return fmt.Errorf("renew the lease in %s, which was removed and is held again: %w", l.dir, ErrLost)
	}
	if err != nil {
		return fmt.Errorf("renew the lease, whose directory was removed: %w", err)
	}
	if err := l.replace(h, bounds); err != nil {
		// The next renewal tries again, because it finds that its lock was removed.
		return errors.Join(fmt.Errorf("renew the lease, whose directory was removed: %w", err), lock.Close())
	}
	_ = l.lock.Close()
	l.lock = lock
	return nil
}

// rewrite overwrites the head in place. The width of a head is fixed, so this
// needs no space on a full file system. A process that reads a half-written
// head finds a wrong check sum and reads again.
func (l *Lease) rewrite(h head) error {
	l.line = h.append(l.line[:0])
	if _, err := l.file.WriteAt(l.line, 0); err != nil {
		return err
	}
	l.head = h
	return nil
}

// adopt takes over the lease file of an earlier holder, and writes only its head.
// bounds are those in the file.
func (l *Lease) adopt(h head, bounds []Bound) error {
	f, err := statedir.Open(filepath.Join(l.dir, leaseFile), os.O_RDWR)
	if err != nil {
		return err
	}
	l.file, l.bounds = f, bounds
	if err := l.rewrite(h); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// replace writes the whole lease to a new file, and renames the file.
func (l *Lease) replace(h head, bounds []Bound) error {
	body, err := encode(bounds)
	if err != nil {
		return err
	}
	h.body = sumOf(body)
	next := filepath.Join(l.dir, leaseFile+".next")
	f, err := statedir.Open(next, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(append(h.append(nil), body...))
	if err == nil {
		err = os.Rename(next, filepath.Join(l.dir, leaseFile))
	}
	if err != nil {
		// The incomplete new file may use the last space of the file system.
		return errors.Join(err, f.Close(), os.Remove(next))
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.head, l.bounds = f, h, slices.Clone(bounds)
	return nil
}

// monotonic returns the time on the clock of all deadlines. All processes of
// one boot and one time namespace share this clock.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}
