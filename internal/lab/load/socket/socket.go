// Package socket contains the TCP sockets of a load client, waits for their
// events, and tells why connections fail.
package socket

import (
	"errors"
	"fmt"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Open begins to connect and does not wait. connected is true if the
// connection is already established, as is common on loopback.
func Open(addr *net.TCPAddr) (fd int, connected bool, err error) {
	family := unix.AF_INET6
	if addr.IP.To4() != nil {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, false, fmt.Errorf("open a socket: %w", err)
	}
	// Without TCP_NODELAY, Nagle's algorithm could delay a request.
	if err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err == nil {
		err = unix.Connect(fd, sockaddr(addr))
	}
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		return fd, err == nil, nil
	}
	_ = unix.Close(fd)
	return -1, false, fmt.Errorf("connect to %v: %w", addr, err)
}

func sockaddr(addr *net.TCPAddr) unix.Sockaddr {
	if ip := addr.IP.To4(); ip != nil {
		return &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(ip)}
	}
	s := &unix.SockaddrInet6{Port: addr.Port, Addr: [16]byte(addr.IP.To16())}
	if zone, err := net.InterfaceByName(addr.Zone); err == nil {
		s.ZoneId = uint32(zone.Index)
	}
	return s
}

// Await waits until the connection on fd is established or has failed.
func Await(fd int, addr *net.TCPAddr, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("connect to %v: no answer within %v", addr, timeout)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("connect to %v: poll: %w", addr, err)
		}
		if n > 0 {
			break
		}
	}
	if err := PendingError(fd); err != nil {
		return fmt.Errorf("connect to %v: %w", addr, err)
	}
	return nil
}

// PendingError returns and clears the pending error of fd (SO_ERROR).
func PendingError(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if code != 0 {
		return unix.Errno(code)
	}
	return nil
}

// Send and Receive do not use the Go scheduler (RawSyscall). These calls cannot
// block, and notifying the scheduler would cost more than the call itself.

// Send writes p to fd, as far as the socket buffer has room.
func Send(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
		unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// Receive reads into p what has arrived on fd.
func Receive(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
		unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
