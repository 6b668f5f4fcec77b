package exchange

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A ring is an io_uring with room for one operation.
type ring struct {
	fd                 int
	submit, done, work []byte
	at                 ringParams
}

// ringParams is struct io_uring_params.
type ringParams struct {
	entries, doneEntries, flags, cpu, idle, features, wq uint32
	_                                                    [3]uint32
	submit, done                                         struct {
		head, tail, mask, entries, a, b, c, d uint32
		_                                     uint64
	}
}

// The numbers of the kernel's interface (linux/io_uring.h).
const (
	opSend, opReceive  = 26, 27
	atDone, atWork     = 0x8000000, 0x10000000
	waitForEvents      = 1
	sizeWork, sizeDone = 64, 16
)

func newRing() (r ring, err error) {
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&r.at)), 0)
	if e != 0 {
		return r, fmt.Errorf("io_uring_setup: %w", e)
	}
	r.fd = int(fd)
	for _, m := range []struct {
		into   *[]byte
		offset int64
		size   uint32
	}{
		{&r.submit, 0, r.at.submit.c + 4*r.at.entries},             // c: the array of indices
		{&r.done, atDone, r.at.done.b + sizeDone*r.at.doneEntries}, // b: the results
		{&r.work, atWork, sizeWork * r.at.entries},
	} {
		if *m.into, err = unix.Mmap(r.fd, m.offset, int(m.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
			return r, fmt.Errorf("map io_uring: %w", err)
		}
	}
	return r, nil
}

func word(memory []byte, at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&memory[at])) }

// do performs one operation and returns its result. The memory of the buffer is not
// that of Go, which may move it.
func (r ring) do(op byte, fd int, buffer []byte) int32 {
	clear(r.work[:sizeWork])
	r.work[0] = op
	binary.LittleEndian.PutUint32(r.work[4:], uint32(fd))
	binary.LittleEndian.PutUint64(r.work[16:], uint64(uintptr(unsafe.Pointer(&buffer[0]))))
	binary.LittleEndian.PutUint32(r.work[24:], uint32(len(buffer)))
	tail := word(r.submit, r.at.submit.tail)
	*word(r.submit, r.at.submit.c+4*(*tail&*word(r.submit, r.at.submit.mask))) = 0
	*tail++
	if _, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 1, 1, waitForEvents, 0, 0); e != 0 {
		check(e)
	}
	head := word(r.done, r.at.done.head)
	result := int32(*word(r.done, r.at.done.b+sizeDone*(*head&*word(r.done, r.at.done.mask))+8))
	*head++
	return result
}

// answerByRing echoes requests by io_uring.
func answerByRing(fd int) {
	r, err := newRing()
	check(err)
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	check(err)
	for message := page[:8]; r.do(opReceive, fd, message) == int32(len(message)); {
		r.do(opSend, fd, message)
	}
}
