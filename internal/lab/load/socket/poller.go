package socket

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Poller waits for sockets with the precision of the kernel's high-resolution
// timers (epoll_pwait2(2), Linux 5.11). On older kernels it sleeps for whole
// milliseconds, and then the caller polls until the time is over.
type Poller struct {
	fd      int
	events  [64]unix.EpollEvent
	timeout unix.Timespec
	coarse  bool // the kernel has no epoll_pwait2
}

// NewPoller returns a poller that watches no socket yet. The caller must close it.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &Poller{fd: fd}, nil
}

// Close releases the poller. It does not close the sockets.
func (p *Poller) Close() { _ = unix.Close(p.fd) }

// Add watches a socket. The events of the socket carry id. If connecting is
// set, there is also an event when the connection is established.
func (p *Poller) Add(fd int, id int32, connecting bool) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: interest(connecting), Fd: id})
}

// Connected ends the wait for the connection of a socket that was added as
// connecting. From now on its events are answers, and the end of the connection.
func (p *Poller) Connected(fd int, id int32) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: interest(false), Fd: id})
}

func interest(connecting bool) uint32 {
	if connecting {
		return unix.EPOLLOUT
	}
	return unix.EPOLLIN | unix.EPOLLRDHUP
}

// Poll returns the ready sockets without waiting. The next call of Poll or Sleep
// overwrites the result.
func (p *Poller) Poll() []unix.EpollEvent {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), 0, 0, 0)
	if errno != 0 {
		return nil
	}
	return p.events[:n]
}

// Sleep waits at most d until a socket is ready. It may return early without one.
func (p *Poller) Sleep(d time.Duration) []unix.EpollEvent {
	if !p.coarse {
		p.timeout = unix.NsecToTimespec(int64(d))
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)),
			uintptr(unsafe.Pointer(&p.timeout)), 0, 0)
		if errno == 0 {
			return p.events[:n]
		}
		p.coarse = errno == unix.ENOSYS
		return nil
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)),
		uintptr(d.Milliseconds()), 0, 0)
	if errno != 0 {
		return nil
	}
	return p.events[:n]
}
