package task

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Cookies gives one core-scheduling cookie to threads. A thread with this cookie
// shares a core only with threads that have the same cookie. While any thread of
// the machine has a cookie, the kernel chooses the threads of all CPUs of a core
// together. This costs every thread of the machine a little time.
//
// The kernel keeps the cookie as long as a thread has it. From NewCookies to Close,
// one thread of this process has it.
type Cookies struct {
	bearer *osThread
	id     uint64
}

// NewCookies makes a cookie, unless a thread of the list already has one. It
// then uses the first such cookie, so that the cookie of an earlier process
// stays in use. NewCookies returns the same errors as CoreCookie.
func NewCookies(from ...int) (*Cookies, error) {
	c := &Cookies{bearer: newOSThread()}
	err := c.bearer.do(func() error {
		for _, tid := range from {
			if id, err := CoreCookie(tid); err != nil || id == 0 {
				continue // the thread has ended or has no cookie
			}
			if err := coreSched(unix.PR_SCHED_CORE_SHARE_FROM, tid); err == nil {
				break
			}
		}
		id, err := CoreCookie(0)
		if err == nil && id == 0 {
			if err = coreSched(unix.PR_SCHED_CORE_CREATE, 0); err == nil {
				id, err = CoreCookie(0)
			}
		}
		c.id = id
		return err
	})
	if err != nil {
		c.bearer.end()
		return nil, fmt.Errorf("make a core-scheduling cookie: %w", err)
	}
	return c, nil
}

// ID returns the cookie as CoreCookie reads it.
func (c *Cookies) ID() uint64 { return c.id }

// Share gives the cookie, in place of any other, to threads until all threads
// of the list have it. It returns the number of changed threads. It skips
// threads for which the function spare returns true; spare may be nil.
func (c *Cookies) Share(list List, spare func(tid int) bool) (n int, err error) {
	clean, err := newClean()
	if err != nil {
		return 0, err
	}
	defer clean.end()
	return settle(list, change{
		name: "a core-scheduling cookie",
		isDone: func(tid int) (bool, error) {
			id, err := CoreCookie(tid)
			return id == c.id || spare != nil && spare(tid), err
		},
		make: func(tid int) error {
			return c.bearer.do(func() error { return coreSched(unix.PR_SCHED_CORE_SHARE_TO, tid) })
		},
		undo: func(tid int) error {
			if id, err := CoreCookie(tid); err != nil || id != c.id {
				return err
			}
			return clean.do(func() error { return coreSched(unix.PR_SCHED_CORE_SHARE_TO, tid) })
		},
	})
}

// Close ends the thread of this process that has the cookie. Other threads keep
// it.
func (c *Cookies) Close() {
	if clean, err := newClean(); err == nil {
		tid := 0
		_ = clean.do(func() error { tid = unix.Gettid(); return nil })
		// If this fails, the thread ends, and its cookie ends with it.
		_ = c.bearer.do(func() error { return coreSched(unix.PR_SCHED_CORE_SHARE_FROM, tid) })
		clean.end()
	}
	c.bearer.end()
}

// ClearCookies clears the cookies of threads, whichever process gave them,
// until no thread of the list has one. It returns the number of changed
// threads.
func ClearCookies(list List) (int, error) {
	clean, err := newClean()
	if err != nil {
		return 0, err
	}
	defer clean.end()
	return settle(list, change{
		name: "no core-scheduling cookie",
		isDone: func(tid int) (bool, error) {
			id, err := CoreCookie(tid)
			return id == 0, err
		},
		make: func(tid int) error {
			return clean.do(func() error { return coreSched(unix.PR_SCHED_CORE_SHARE_TO, tid) })
		},
		undo: func(int) error { return nil }, // the cookie may belong to another owner, who sets it again
	})
}

// coreSched performs one prctl(PR_SCHED_CORE) operation; tid 0 is the calling
// thread.
func coreSched(op, tid int) error {
	err := unix.PrctlArg5Ptr(unix.PR_SCHED_CORE, uintptr(op), uintptr(tid), unix.PR_SCHED_CORE_SCOPE_THREAD, unsafe.Pointer(nil))
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	what := map[int]string{
		unix.PR_SCHED_CORE_CREATE: "make a cookie for", unix.PR_SCHED_CORE_SHARE_TO: "share the cookie with",
		unix.PR_SCHED_CORE_SHARE_FROM: "take the cookie of",
	}[op]
	return fmt.Errorf("%s thread %d: %w", what, tid, cause(err))
}

// newClean returns a thread without a cookie. The kernel has no operation that
// clears a cookie. Instead, a thread without a cookie copies this state to
// other threads (PR_SCHED_CORE_SHARE_TO).
func newClean() (*osThread, error) {
	t := newOSThread()
	err := t.do(func() error {
		id, err := CoreCookie(0)
		if err != nil || id == 0 {
			return err
		}
		// A container runtime may have given a cookie to this process.
		for _, tid := range []int{1, 2} {
			if id, err := CoreCookie(tid); err == nil && id == 0 && coreSched(unix.PR_SCHED_CORE_SHARE_FROM, tid) == nil {
				return nil
			}
		}
		return fmt.Errorf("this process has cookie %d and finds no thread without a cookie", id)
	})
	if err != nil {
		t.end()
		return nil, fmt.Errorf("clear core-scheduling cookies: %w", err)
	}
	return t, nil
}

// An osThread is a locked thread of this process that runs the functions sent
// to it. It has no child threads, because the Go runtime creates threads only
// from threads that are not locked.
type osThread struct{ work chan func() }

func newOSThread() *osThread {
	t := &osThread{work: make(chan func())}
	go t.run(nil)
	return t
}

// run executes functions until end is called. If the cookie of the thread has
// changed by then, the thread must end, because Go would reuse it. Otherwise it
// must stay, because processes that it started with a parent-death signal would
// be killed. The first thread of a process cannot end, so it delegates to
// another thread.
func (t *osThread) run(begun chan<- struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		other := make(chan struct{})
		go t.run(other)
		<-other
		runtime.UnlockOSThread()
		return
	}
	if begun != nil {
		close(begun)
	}
	before, _ := CoreCookie(0) //nolint:errcheck // 0 after an error: then the thread ends, which is always right
	for f := range t.work {
		f()
	}
	if after, _ := CoreCookie(0); after == before { //nolint:errcheck // 0 after an error, as above
		runtime.UnlockOSThread()
	}
}

func (t *osThread) do(f func() error) error {
	done := make(chan error)
	t.work <- func() { done <- f() }
	return <-done
}

func (t *osThread) end() { close(t.work) }
