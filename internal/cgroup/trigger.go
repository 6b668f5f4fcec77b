package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxWindow is the longest window that the kernel takes.
const maxWindow = 10 * time.Second

// A Trigger tells as soon as tasks have waited too long for a resource. The
// kernel looks ten times in a window while any task waits, and tells at most
// once in a window (Documentation/accounting/psi.rst, "Monitoring for
// pressure thresholds", Linux 5.2). It takes a thread that sleeps.
type Trigger struct {
	pressure int // the open pressure file, whose close ends the trigger
	stop     int // an eventfd
	fired    chan struct{}
	ended    chan struct{}
	why      error // why it ended by itself

	closing sync.Once
}

// Trigger makes a trigger for a group: it fires when the times in a window in
// which at least one task of the group, or below it, waited for the resource
// (cpu, memory or io) add up to stall. The kernel wants
//
//	0 < stall ≤ window ≤ 10 s
//
// and counts in microseconds. Older kernels want a window of at least 500 ms,
// and without CAP_SYS_RESOURCE it must be a multiple of 2 s; otherwise EINVAL.
// It gives ErrUnsupported on v1, and where PSI is off for cgroups.
func (t *Tree) Trigger(path, resource string, stall, window time.Duration) (*Trigger, error) {
	h, file := t.all[0], resource+".pressure"
	if h.version == 1 {
		return nil, fmt.Errorf("watch %s in %s: cgroup v1 has no pressure: %w", file, shown(path), ErrUnsupported)
	}
	dir, err := h.dir(path)
	if err != nil {
		return nil, err
	}
	tr, err := newTrigger(filepath.Join(dir, file), stall, window)
	if err != nil {
		return nil, fmt.Errorf("watch %s in %s for %v in %v: %w", file, shown(path), stall, window, cause(dir, err))
	}
	return tr, nil
}

// NodeTrigger makes a trigger for the whole node, from /proc/pressure/RESOURCE
// below a mount of procfs. It needs no cgroup v2.
func NodeTrigger(procRoot, resource string, stall, window time.Duration) (*Trigger, error) {
	file := filepath.Join(procRoot, "pressure", resource)
	tr, err := newTrigger(file, stall, window)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s for %v in %v: %w", file, stall, window, err)
	}
	return tr, nil
}

func newTrigger(file string, stall, window time.Duration) (*Trigger, error) {
	if stall < time.Microsecond || stall > window || window > maxWindow {
		return nil, fmt.Errorf("want 1µs ≤ stall ≤ window ≤ %v", maxWindow)
	}
	// Not os.OpenFile: Go's poller would watch the file, too, and every poll
	// takes the event away from the others (kernel/sched/psi.c:
	// psi_trigger_poll).
	pressure, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	// The kernel overwrites the last byte with the end of the text.
	text := fmt.Sprintf("some %d %d\n", stall.Microseconds(), window.Microseconds())
	if _, err := unix.Write(pressure, []byte(text)); err != nil {
		return nil, errors.Join(err, unix.Close(pressure))
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(err, unix.Close(pressure))
	}
	tr := &Trigger{pressure: pressure, stop: stop, fired: make(chan struct{}, 1), ended: make(chan struct{})}
	go tr.run()
	return tr, nil
}

// Fired tells that the trigger has fired since the last receive. It is closed
// when the trigger ends: by Close, or because the group has been removed.
func (tr *Trigger) Fired() <-chan struct{} { return tr.fired }

// Err returns why the trigger has ended by itself: ErrGone, as the group has
// been removed. It is nil before that and after Close.
func (tr *Trigger) Err() error {
	select {
	case <-tr.ended:
		return tr.why
	default:
		return nil
	}
}

// Close ends the trigger, also one that has ended by itself.
func (tr *Trigger) Close() {
	tr.closing.Do(func() {
		_, _ = unix.Write(tr.stop, binary.NativeEndian.AppendUint64(nil, 1))
		<-tr.ended
		_ = unix.Close(tr.stop)
	})
}

func (tr *Trigger) run() {
	defer close(tr.fired)
	defer close(tr.ended)
	defer unix.Close(tr.pressure)
	files := []unix.PollFd{{Fd: int32(tr.pressure), Events: unix.POLLPRI}, {Fd: int32(tr.stop), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(files, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			tr.why = fmt.Errorf("poll a pressure file: %w", err)
			return
		case files[1].Revents != 0:
			return
		case files[0].Revents&unix.POLLPRI == 0 || files[0].Revents&unix.POLLERR != 0:
			tr.why = ErrGone
			return
		}
		select {
		case tr.fired <- struct{}{}:
		default:
		}
	}
}
