// Package perf counts what a process and its descendants do, with the
// performance counters of the kernel (perf_event_open(2)). The counts are
// exact, because the kernel counts each event and takes no samples.
package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Event is something that a Counter can count.
type Event struct {
	Name   string // as in perf-list(1)
	kind   uint32
	config uint64
}

// The events. The kernel can count the first two on every machine. The others
// need a performance monitoring unit, which most virtual machines lack.
var (
	Migrations   = Event{"cpu-migrations", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_MIGRATIONS}
	Switches     = Event{"context-switches", unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES}
	Cycles       = Event{"cycles", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES}
	Instructions = Event{"instructions", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS}
	CacheMisses  = Event{"cache-misses", unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CACHE_MISSES}
)

// ErrUnsupported means that this machine cannot count the event.
var ErrUnsupported = errors.New("this machine cannot count it")

// A Counter counts one event in a process, and in all threads and processes
// that it starts.
type Counter struct {
	event Event
	file  *os.File
}

// Count counts an event in a process. It begins to count when the process next
// executes a program. If the machine cannot count the event, Count returns
// ErrUnsupported.
func Count(pid int, e Event) (*Counter, error) {
	attr := unix.PerfEventAttr{
		Type: e.kind, Config: e.config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
		Bits:        unix.PerfBitDisabled | unix.PerfBitInherit | unix.PerfBitEnableOnExec,
	}
	fd, err := unix.PerfEventOpen(&attr, pid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENODEV) {
		err = ErrUnsupported
	}
	if err != nil {
		return nil, fmt.Errorf("count %s of process %d: %w", e.Name, pid, err)
	}
	return &Counter{e, os.NewFile(uintptr(fd), "perf "+e.Name)}, nil
}

// Read returns the count so far. It also works after the process has ended. If
// the machine had too few counters, the kernel counted only part of the time.
// Read then scales the count up to the whole time.
func (c *Counter) Read() (float64, error) {
	var b [24]byte
	if _, err := c.file.Read(b[:]); err != nil {
		return 0, fmt.Errorf("read %s: %w", c.event.Name, err)
	}
	count := float64(binary.NativeEndian.Uint64(b[:]))
	enabled, running := float64(binary.NativeEndian.Uint64(b[8:])), float64(binary.NativeEndian.Uint64(b[16:]))
	if running > 0 && running < enabled {
		count *= enabled / running
	}
	return count, nil
}

// Close ends the counting.
func (c *Counter) Close() error { return c.file.Close() }
