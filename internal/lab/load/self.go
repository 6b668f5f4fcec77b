package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// A Self is a service that generates its own load: its own process makes the
// requests by a schedule. There is no client, so the client needs no CPUs.
type Self struct {
	Threads int // each has a schedule of its own
	// Memory is the memory of each thread. A request makes selfReads reads at
	// random places. Each place depends on the result of the read before.
	Memory unit.Bytes
}

// selfReads is the number of reads of a request.
const selfReads = 1000

// Run makes the requests of c in open loop. The latency of a request counts
// from the time at which it was due. A thread makes one request at a time. The
// kernel may move the threads between the CPUs of the process.
//
// After their last request the threads sleep until the caller calls release,
// because the kernel forgets the counters of a thread that ends. If Run returns
// an error, the threads have ended, and release does nothing.
func (s Self) Run(ctx context.Context, c Config) (r *Result, release func(), err error) {
	var ended sync.WaitGroup
	leave := make(chan struct{})
	release = sync.OnceFunc(func() {
		close(leave)
		ended.Wait()
	})
	defer func() {
		if err != nil {
			release()
		}
	}()
	r, err = s.run(ctx, c, &ended, leave)
	return r, release, err
}

// run starts the threads, and counts them in ended. They end only after the
// channel leave is closed.
func (s Self) run(ctx context.Context, c Config, ended *sync.WaitGroup, leave <-chan struct{}) (*Result, error) {
	c.URL = "self"
	c, err := c.withDefaults(openLoop)
	if err != nil {
		return nil, err
	}
	if s.Threads < 1 || s.Threads > 1024 || s.Memory < 4<<10 || s.Memory > 1<<40 {
		return nil, fmt.Errorf("load: %d threads with %v bytes each: want 1 to 1024 threads with 4 KiB to 1 TiB", s.Threads, s.Memory)
	}
	var cancelled atomic.Bool
	defer context.AfterFunc(ctx, func() { cancelled.Store(true) })()
	// A sleeping thread keeps its processor of the Go scheduler (P).
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + s.Threads)
	defer runtime.GOMAXPROCS(procs)

	total := c.Warmup + c.Duration
	threads := make([]*thread, s.Threads)
	failed := make([]error, s.Threads)
	begin := make(chan struct{})
	var prepared, done sync.WaitGroup
	for i := range threads {
		t := &thread{total: total, timeout: c.Timeout, cancelled: &cancelled}
		threads[i] = t
		prepared.Add(1)
		done.Add(1)
		ended.Go(func() {
			runtime.LockOSThread() // never unlocked, so the thread ends with its timer slack
			memory, err := s.memory()
			if err == nil {
				defer func() { _ = unix.Munmap(memory) }()
				err = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
			}
			t.record.due = schedule(c, i, s.Threads, total)
			t.record.latency = filled(len(t.record.due), unsent)
			prepared.Done()
			<-begin
			if failed[i] = err; err == nil {
				t.serve(memory)
			}
			done.Done()
			<-leave
		})
	}
	prepared.Wait()
	started := time.Now().Add(headStart)
	for _, t := range threads {
		t.start = started
	}
	close(begin)
	done.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	r := &Result{
		Schema: 1, URL: c.URL, Loop: "self", Arrival: c.Arrival, Seed: c.Seed, CPUs: c.CPUs, Limits: c.Limits,
		Started: started,
	}
	r.Intervals, r.Causes = intervals(threads, closedLoop, total)
	return r, r.Discard(c.Warmup)
}

// memory maps the memory of a thread and writes to each page.
func (s Self) memory() ([]byte, error) {
	m, err := unix.Mmap(-1, 0, int(s.Memory), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %v bytes: %w", s.Memory, err)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(m))))
	for i := 0; i < len(m); i += 64 {
		m[i] = byte(random.Uint32())
	}
	return m, nil
}

// serve makes the requests of a thread. It stops when the timeout after the end
// of the schedule is over. Requests that have not begun by then stay unsent.
func (t *thread) serve(memory []byte) {
	lines := uint64(len(memory) / 64)
	at := uint64(1)
	for i, due := range t.record.due {
		t.sleepUntil(due)
		if t.cancelled.Load() || t.now() > int64(t.total+t.timeout) {
			return
		}
		for range selfReads {
			at = at*6364136223846793005 + 1442695040888963407 + uint64(memory[(at>>17)%lines*64])
		}
		late := (t.now() - due + int64(LatencyUnit)/2) / int64(LatencyUnit)
		t.record.latency[i] = uint32(min(max(late, 1), int64(longest/LatencyUnit)))
	}
	runtime.KeepAlive(at)
}

// sleepUntil sleeps until the given time since the start of the run. Like
// poller, it does not use the Go scheduler, because that would add a delay.
func (t *thread) sleepUntil(at int64) {
	for now := t.now(); now < at && !t.cancelled.Load(); now = t.now() {
		nap := unix.NsecToTimespec(min(at-now, int64(200*time.Millisecond)))
		_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&nap)), 0, 0, 0)
	}
}
