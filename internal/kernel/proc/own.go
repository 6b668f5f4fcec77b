package proc

import (
	"syscall"
	"time"
)

// OwnCPUTime returns the CPU time that all threads of this process have used
// (getrusage(2)). It returns 0 if the time is not known.
func OwnCPUTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
