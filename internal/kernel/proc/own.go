package proc

import (
	"syscall"
	"time"
)

// OwnCPUTime returns the CPU time of this process in all its threads
// (getrusage(2)); 0: it is not known.
func OwnCPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
