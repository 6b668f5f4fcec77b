// Package psi waits until tasks have waited too long for a resource: it makes
// triggers for files of pressure stall information.
package psi

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxWindow is the longest window that the kernel accepts.
const maxWindow = 10 * time.Second

// A Trigger sends an event when tasks have waited too long for a resource, at most
// one event in each window of time. While any task waits, the kernel checks ten
// times per window (Documentation/accounting/psi.rst, "Monitoring for pressure
// thresholds", Linux 5.2). The kernel runs one thread for each group with triggers.
type Trigger struct {
	pressure int // the open pressure file; closing it ends the trigger
	fired    chan struct{}
	removed  error // the reason of the end if the file is removed
	ended    bool
	why      error // why the trigger ended without Close
}

// Watch makes a trigger for a pressure file. It fires when tasks have waited for
// the time stall within a window. Time in which several tasks wait counts once.
// The kernel requires
//
//	0 < stall ≤ window ≤ 10 s
//
// and stores whole microseconds. Older kernels require a window of at least 500 ms.
// Without CAP_SYS_RESOURCE the window must be a multiple of 2 s. If a condition is not
// met, Watch returns EINVAL. removed is the error of the trigger if its file is
// removed.
func Watch(file string, stall, window time.Duration, removed error) (*Trigger, error) {
	if stall < time.Microsecond || stall > window || window > maxWindow {
		return nil, fmt.Errorf("want 1µs ≤ stall ≤ window ≤ %v", maxWindow)
	}
	// os.OpenFile would register the file with Go's poller. Each poll clears
	// the event, so Go's poller would take events that our own poll should get
	// (kernel/sched/psi.c: psi_trigger_poll).
	pressure, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	// The kernel overwrites the last byte with the terminating zero.
	text := fmt.Sprintf("some %d %d\n", stall.Microseconds(), window.Microseconds())
	if _, err := unix.Write(pressure, []byte(text)); err != nil {
		return nil, errors.Join(err, unix.Close(pressure))
	}
	tr := &Trigger{pressure: pressure, fired: make(chan struct{}, 1), removed: removed}
	if err := triggers.add(tr); err != nil {
		return nil, errors.Join(err, unix.Close(pressure))
	}
	return tr, nil
}

// Fired receives a value if the trigger has fired since the last receive. The channel
// is closed when the trigger ends: by Close, or because the file was removed.
func (tr *Trigger) Fired() <-chan struct{} { return tr.fired }

// Err returns why the trigger ended. It returns nil before the end, and after
// Close.
func (tr *Trigger) Err() error {
	triggers.mu.Lock()
	defer triggers.mu.Unlock()
	return tr.why
}

// Close ends the trigger. It may be called for a trigger that has ended already.
func (tr *Trigger) Close() {
	triggers.mu.Lock()
	defer triggers.mu.Unlock()
	tr.end(nil)
}

// end closes a trigger that has not ended. Closing the file also removes it
// from the poller. The caller holds triggers.mu.
func (tr *Trigger) end(why error) {
	if tr.ended {
		return
	}
	tr.ended, tr.why = true, why
	_ = unix.Close(tr.pressure)
	close(tr.fired)
}

// triggers is the poller of all triggers of this process. The first trigger
// starts its thread.
var triggers poller

// A poller waits in one thread for the kernel's events of open pressure
// files, and passes each event to its trigger.
type poller struct {
	mu    sync.Mutex // also guards all triggers
	epoll int
	of    map[int32]*Trigger // by a number that is never reused; nil before the first trigger
	last  int32
}

func (p *poller) add(tr *Trigger) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return fmt.Errorf("wait for pressure: %w", err)
		}
		p.epoll, p.of = epoll, map[int32]*Trigger{}
		go p.run()
	}
	p.last++
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, tr.pressure, &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: p.last}); err != nil {
		return fmt.Errorf("wait for pressure: %w", err)
	}
	for n, old := range p.of {
		if old.ended {
			delete(p.of, n)
		}
	}
	p.of[p.last] = tr
	return nil
}

func (p *poller) run() {
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		p.mu.Lock()
		for _, e := range events[:max(n, 0)] {
			p.tell(e)
		}
		if err != nil && !errors.Is(err, unix.EINTR) { // an open file gives no such error
			for _, tr := range p.of {
				tr.end(fmt.Errorf("wait for pressure: %w", err))
			}
			_ = unix.Close(p.epoll)
			p.of = nil
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// tell handles one event. The caller holds p.mu.
func (p *poller) tell(e unix.EpollEvent) {
	tr := p.of[e.Fd]
	if tr == nil || tr.ended {
		return
	}
	if e.Events&unix.EPOLLERR != 0 || e.Events&unix.EPOLLPRI == 0 {
		tr.end(tr.removed)
		delete(p.of, e.Fd)
		return
	}
	select {
	case tr.fired <- struct{}{}:
	default:
	}
}
