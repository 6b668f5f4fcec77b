package load

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A poller waits for sockets with the precision of the kernel's high-resolution
// timers (epoll_pwait2(2), Linux 5.11). On older kernels it sleeps for whole
// milliseconds, and then the caller polls until the time is over.
type poller struct {
	fd      int
	events  [64]unix.EpollEvent
	timeout unix.Timespec
	coarse  bool // the kernel has no epoll_pwait2
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &poller{fd: fd}, nil
}

func (p *poller) close() { _ = unix.Close(p.fd) }

// add watches a socket. The events of the socket carry id. If connecting is
// set, there is also an event when the connection is established.
func (p *poller) add(fd int, id int32, connecting bool) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: interest(connecting), Fd: id})
}

func (p *poller) connected(fd int, id int32) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: interest(false), Fd: id})
}

func interest(connecting bool) uint32 {
	if connecting {
		return unix.EPOLLOUT
	}
	return unix.EPOLLIN | unix.EPOLLRDHUP
}

// poll returns the ready sockets without waiting.
func (p *poller) poll() []unix.EpollEvent {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)), uintptr(len(p.events)), 0, 0, 0)
	if errno != 0 {
		return nil
	}
	return p.events[:n]
}

// sleep waits at most d until a socket is ready. It may return early without one.
func (p *poller) sleep(d time.Duration) []unix.EpollEvent {
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
