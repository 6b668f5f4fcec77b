package launch

import (
	"golang.org/x/sys/unix"
)

const (
	ioprioWhoProcess = 1       // IOPRIO_WHO_PROCESS, include/uapi/linux/ioprio.h
	ioprioIdle       = 3 << 13 // IOPRIO_CLASS_IDLE
	niceLeast        = 19
)

// idleSelf gives the calling thread the lowest priority for CPU and disk. It
// ignores errors, because the command can run with a higher priority. Under
// SCHED_IDLE the nice value has no effect; it is for children that leave
// SCHED_IDLE.
func idleSelf() {
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceLeast)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: niceLeast}, 0)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, 0, ioprioIdle)
}
