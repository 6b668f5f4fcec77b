package launch

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwardedSignals are the signals that Tenon forwards to the command.
var forwardedSignals = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT,
}

// catchSignals starts to receive the forwarded signals, except those that this
// process ignores, such as SIGHUP under nohup. The command inherits this, and
// ignores them, too.
func catchSignals() (<-chan os.Signal, func()) {
	caught := make(chan os.Signal, 16)
	for _, s := range forwardedSignals {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	return caught, func() { signal.Stop(caught) }
}

// pass sends s to the command, except if the terminal sent s. The terminal sends
// a signal to the whole process group, so the command already has it.
func pass(p *os.Process, s os.Signal) {
	switch s {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH:
		if !isInForeground() {
			_ = p.Signal(s)
		}
	case unix.SIGTSTP:
		if !isInForeground() {
			_ = p.Signal(s)
		}
		_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	default:
		_ = p.Signal(s)
	}
}

// isInForeground reports whether the terminal sends its signals to the process
// group of this process.
func isInForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// statusOf returns the exit status as shells define it. It also returns the
// name of the signal that ended the command, or "".
func statusOf(s *os.ProcessState) (int, string) {
	ws, ok := s.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return 128 + int(ws.Signal()), unix.SignalName(ws.Signal())
	}
	return s.ExitCode(), ""
}
