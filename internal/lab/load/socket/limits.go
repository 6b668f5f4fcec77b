package socket

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits holds, as text, the kernel's limits for the connections of a client.
// If a limit could not be read, it is "?".
type Limits struct {
	TWReuse   string // net.ipv4.tcp_tw_reuse
	PortRange string // net.ipv4.ip_local_port_range
	Somaxconn string // net.core.somaxconn
	OpenFiles string // RLIMIT_NOFILE, "soft (hard H)"
}

// readLimits reads the limits below procSys, which is /proc/sys except in
// tests, and the limits of process pid. A pid of 0 means the caller.
//
// Source: Documentation/networking/ip-sysctl.rst, prlimit(2).
func readLimits(procSys string, pid int) Limits {
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(procSys, file))
		if err != nil {
			return "?"
		}
		return strings.Join(strings.Fields(string(text)), " ")
	}
	l := Limits{
		TWReuse:   read("net/ipv4/tcp_tw_reuse"),
		PortRange: read("net/ipv4/ip_local_port_range"),
		Somaxconn: read("net/core/somaxconn"),
		OpenFiles: "?",
	}
	var files unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &files); err == nil {
		l.OpenFiles = fmt.Sprintf("%d (hard limit %d)", files.Cur, files.Max)
	}
	return l
}

// OwnLimits returns the limits of this process.
func OwnLimits() Limits { return readLimits("/proc/sys", 0) }

// Hints explains why connections fail and how to prevent it. The texts
// contain the current values of the limits.
func (l Limits) Hints() []string {
	reuse := "is on only for loopback"
	switch l.TWReuse {
	case "0":
		reuse = "is off"
	case "1":
		reuse = "is on"
	case "?":
		reuse = "could not be read"
	}
	return []string{
		"Connections fail when the client machine runs out of local ports: those of closed connections stay taken for a minute (TIME_WAIT).",
		fmt.Sprintf("net.ipv4.tcp_tw_reuse = %s (%s). To use such ports again: sysctl -w net.ipv4.tcp_tw_reuse=1 on the client machine; set it back to %s after the test.", l.TWReuse, reuse, l.TWReuse),
		fmt.Sprintf("net.ipv4.ip_local_port_range = %s. For more ports: sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\".", l.PortRange),
		fmt.Sprintf("open files (ulimit -n) = %s. Each connection takes one: ulimit -n 65536, for the server too.", l.OpenFiles),
		fmt.Sprintf("net.core.somaxconn = %s. It bounds the connections waiting to be accepted: fewer connections at once, or %s.", l.Somaxconn, l.moreAccepted()),
	}
}

// moreAccepted says how a server holds more connections that wait to be accepted.
func (l Limits) moreAccepted() string {
	const enough = 4096 // the default since Linux 5.4
	backlog := "the backlog of the server raised to it (nginx: listen … backlog=4096)"
	if n, err := strconv.Atoi(l.Somaxconn); err == nil && n >= enough {
		return backlog
	}
	return fmt.Sprintf("sysctl -w net.core.somaxconn=%d on the server and %s", enough, backlog)
}

// Explain adds hints to an error of the set-up that such hints can explain.
func Explain(err error) error {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: is the service running, and on this port?", err)
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ETIMEDOUT):
		return fmt.Errorf("%w\n%s", err, strings.Join(OwnLimits().Hints(), "\n"))
	}
	return err
}
