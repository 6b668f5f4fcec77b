package work

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore writes one byte (into state) for each page of a mapped file. The
// lowest bit of the byte is 1 if the page is in memory (mincore(2)).
func mincore(mapped, state []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[0])), uintptr(len(mapped)), uintptr(unsafe.Pointer(&state[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
