package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// Reclaim asks the kernel to reclaim n bytes from a group and all groups below it
// (memory.reclaim: Linux 5.19), and returns when the kernel has answered, which may
// take long. It returns EAGAIN if the kernel has reclaimed less, and EINTR if ctx has
// ended before. What the kernel has reclaimed, Stolen shows. On v1, Reclaim returns
// ErrUnsupported: its memory.force_empty takes no amount.
func Reclaim(ctx context.Context, t *Tree, path string, n unit.Bytes) error {
	h, err := t.hierarchy(memory)
	if err == nil && h.version == 1 {
		err = ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("write memory.reclaim in %s: %w", printPath(path), err)
	}
	dir, err := h.dir(path)
	if err != nil {
		return err
	}
	err = writeInterruptibly(ctx, filepath.Join(dir, "memory.reclaim"), strconv.FormatInt(int64(n), 10))
	if err != nil {
		return fmt.Errorf("write memory.reclaim %d in %s: %w", int64(n), printPath(path), cause(dir, err))
	}
	return nil
}

// StolenLags is how old the value of Stolen may be: on a read, the kernel adds up the
// counters of all CPUs only after many updates (64 for each CPU), and otherwise every
// 2 s (mem_cgroup_flush_stats in mm/memcontrol.c).
const StolenLags = 2 * time.Second

// Stolen reads the memory that the kernel has reclaimed from a group so far, by whatever
// cause (pgsteal of memory.stat). The value may be as old as StolenLags.
func Stolen(t *Tree, path string) (unit.Bytes, error) {
	m, err := read(t, memory, path, "memory.stat", flatFile("pgsteal"))
	if err != nil {
		return 0, err
	}
	pages, known := m["pgsteal"]
	if !known {
		return 0, fmt.Errorf("parse memory.stat in %s: no pgsteal", printPath(path))
	}
	return unit.Bytes(pages) * unit.Bytes(os.Getpagesize()), nil
}

// signalPause is the time between two signals to a thread that has not returned from
// write(2). The first may come just before the call.
const signalPause = 50 * time.Millisecond

// untilEnd repeats a call that a signal has ended, until ctx ends. The runtime of Go sends
// signals of its own to preempt a thread. A repeated reclaim asks for the whole amount
// again, because the kernel does not say what it has reclaimed before a signal.
func untilEnd(ctx context.Context, call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) || ctx.Err() != nil {
			return err
		}
	}
}

// writeInterruptibly writes a text to a file of the kernel. When ctx ends, it sends SIGURG to its
// own thread, for which the runtime of Go has a handler that does nothing: the kernel
// ends a reclaim with EINTR if the thread has a signal.
func writeInterruptibly(ctx context.Context, path, text string) error {
	if ctx.Err() != nil {
		return syscall.EINTR
	}
	fd, err := openFlags(path, syscall.O_WRONLY)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, thread, written := os.Getpid(), unix.Gettid(), make(chan struct{})
	signalled := make(chan struct{})
	go func() {
		defer close(signalled)
		select {
		case <-written:
			return
		case <-ctx.Done():
		}
		for {
			_ = unix.Tgkill(pid, thread, syscall.SIGURG) // it fails only if the thread is gone
			select {
			case <-written:
				return
			case <-time.After(signalPause):
			}
		}
	}()
	err = untilEnd(ctx, func() error {
		_, err := syscall.Write(fd, []byte(text))
		return err
	})
	close(written)
	<-signalled // the thread must be this one until then
	return err
}
