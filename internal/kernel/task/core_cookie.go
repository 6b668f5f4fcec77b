package task

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CoreCookie reads the core-scheduling cookie of a thread; 0 means no cookie.
// Only threads with the same cookie run on a core at the same time
// (Documentation/admin-guide/hw-vuln/core-scheduling.rst, Linux 5.14).
// CoreCookie returns ErrUnsupported on kernels without CONFIG_SCHED_CORE
// (EINVAL) and on machines without SMT (ENODEV).
func CoreCookie(tid int) (uint64, error) {
	var cookie uint64
	err := unix.PrctlArg5Ptr(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(tid),
		unix.PR_SCHED_CORE_SCOPE_THREAD, unsafe.Pointer(&cookie))
	if err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
			err = fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		return 0, fmt.Errorf("read core-scheduling cookie of thread %d: %w", tid, cause(err))
	}
	return cookie, nil
}
