package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/load/fate"
	"tenon.sh/tenon/internal/lab/load/protocol"
	"tenon.sh/tenon/internal/lab/load/socket"
	"tenon.sh/tenon/internal/model/unit"
)

type loop int

const (
	openLoop loop = iota
	closedLoop
)

func (l loop) String() string {
	if l == closedLoop {
		return "closed"
	}
	return "open"
}

const (
	// longestSleep bounds how long it takes until a thread notices that the run
	// was cancelled.
	longestSleep = 5 * time.Millisecond
	// housekeeping is the period of checks for timeouts and broken sockets.
	housekeeping = 5 * time.Millisecond
	// retryAfter is the pause after a failed attempt to connect.
	retryAfter = 20 * time.Millisecond
	// longestWatch is the most time of an iteration that counts as polling the
	// clock and the sockets. If an iteration of a polling thread took longer,
	// the thread lost its CPU meanwhile, or did other work.
	longestWatch = 5 * time.Microsecond
)

// A thread sends its part of the load from one CPU. In open loop it allocates
// no memory during the run: it writes into arrays that exist before the run.
// After the run, intervals makes histograms from the arrays.
type thread struct {
	loop      loop
	target    protocol.Target
	addr      *net.TCPAddr // one of target.Addrs
	cpu       unit.CPU
	total     time.Duration // of the schedule
	timeout   time.Duration
	spin      time.Duration
	start     time.Time    // start of the run; all times below count from it
	cancelled *atomic.Bool // by the caller

	poller *socket.Poller
	buffer []byte
	conns  []conn
	from   int  // number of connections of the threads before this one
	all    int  // number of connections of all threads
	free   ring // idle connections; the first has been idle longest
	busy   int  // number of connections with an answer outstanding
	next   int  // index of the next request to send
	draw   *rand.Rand
	seen   int   // index of the first request that has not been seen as due
	swept  int64 // time of the last housekeeping

	refusal error // of the latest connection whose first message got no good answer

	// givenUp has the states of the connections when the thread gave up the requests
	// that it had not sent. It is zero if it has sent all.
	givenUp fate.Connections

	record record
}

// A record holds the data of a thread. It has one row for each request.
type record struct {
	due     []int64  // ns; in closed loop the time of the actual send
	latency []uint32 // µs, or a value from noLatency on
	lag     []uint32 // ns, or noLag
	usage   []usage
	connect []failedConnect
	causes  fate.Causes
	// reconnects counts connections that the server closed between requests.
	reconnects int64
}

// A failedConnect is a failed attempt to connect.
type failedConnect struct {
	at   int64  // ns
	fate uint32 // see record.fate
}

// usage is a thread's CPU time (cpu) and its polling time (watching) until one time (at).
type usage struct {
	at, cpu, watching int64 // ns
}

// The fates of a request without a latency. Lower values than noLatency are
// latencies. The values from noLatency up to pending are causes of failures, by their
// index in record.causes.
const (
	unsent  uint32 = 1<<32 - 1 - iota
	waiting        // for a connection
	pending        // sent, not answered

	noLatency = pending - fate.MaxCauses

	noLag = unsent // the request waited for a connection
)

// fate returns the value that stands for a failure.
func (r *record) fate(c fate.Cause) uint32 { return noLatency + uint32(r.causes.Index(c)) }

// drawStream makes the random stream of the pages differ from the stream of the schedule.
const drawStream = 1 << 32

// prepare binds the calling goroutine to its thread and the thread to a CPU,
// makes the schedule and connects. The same goroutine must then call run.
func (t *thread) prepare(c Config, index, threads int) error {
	runtime.LockOSThread()
	if err := pinThread(t.cpu); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	// By default, the kernel may delay the wake-up of a sleeping thread by 50
	// µs, its timer slack (prctl(2)).
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("load: set the timer slack to 1 ns: %w", err)
	}
	if t.loop == openLoop {
		t.record.due = schedule(c, index, threads, t.total)
		t.record.latency = filled(len(t.record.due), unsent)
		t.record.lag = filled(len(t.record.due), noLag)
	} else {
		room := int(min(200e3*t.total.Seconds(), 20e6))
		t.record.due = make([]int64, 0, room)
		t.record.latency = make([]uint32, 0, room)
	}
	t.record.usage = make([]usage, 0, int(t.total/IntervalLength)+1000)
	t.buffer = make([]byte, 64<<10)
	t.draw = rand.New(rand.NewPCG(c.Seed, drawStream+uint64(index)))
	t.from, t.all = c.Connections*index/threads, c.Connections
	t.conns = make([]conn, c.Connections*(index+1)/threads-t.from)
	t.free = ring{ids: make([]int32, len(t.conns))}

	var err error
	if t.poller, err = socket.NewPoller(); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for id := range t.conns {
		k := &t.conns[id]
		k.fd, k.answer, k.begin = -1, t.target.Answer(), make([]byte, 0, beginLength)
		fd, connected, err := socket.Open(t.addr)
		if err != nil {
			return fmt.Errorf("load: %s: %w", t.describe(id), err)
		}
		k.fd = fd
		if !connected {
			err = socket.Await(fd, t.addr, min(t.timeout, 5*time.Second))
		}
		if err == nil {
			err = t.poller.Add(fd, int32(id), false)
		}
		if err != nil {
			return fmt.Errorf("load: %s: %w", t.describe(id), err)
		}
		t.greet(int32(id))
	}
	return t.awaitGreeted(max(t.timeout, 5*time.Second))
}

// describe names a connection of the thread by its number among all connections.
func (t *thread) describe(id int) string {
	return fmt.Sprintf("connection %d of %d", t.from+id+1, t.all)
}

// pinThread restricts the calling thread to one CPU.
func pinThread(cpu unit.CPU) error {
	var set unix.CPUSet
	set.Set(int(cpu))
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin a thread to CPU %d: %w", cpu, err)
	}
	return nil
}

func filled(n int, value uint32) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = value // also makes the kernel map the pages before the run
	}
	return s
}

// close closes all connections. The pinned thread ends when its goroutine ends.
func (t *thread) close() {
	for i := range t.conns {
		if t.conns[i].fd >= 0 {
			_ = unix.Close(t.conns[i].fd)
		}
	}
	if t.poller != nil {
		t.poller.Close()
	}
}

func (t *thread) now() int64 { return int64(time.Since(t.start)) }

var errCancelled = errors.New("cancelled")

// run sends and receives until the schedule is over and all its requests have ended.
func (t *thread) run() error {
	end := int64(t.total)
	tick := int64(0)
	watching, watched, since := int64(0), false, t.now()
	for {
		now := t.now()
		if watched {
			watching += min(now-since, int64(longestWatch))
		}
		since = now
		if now >= tick {
			t.record.usage = append(t.record.usage, usage{at: now, cpu: threadCPU(), watching: watching})
			tick = now - now%int64(IntervalLength) + int64(IntervalLength)
			if t.cancelled.Load() {
				return errCancelled
			}
		}
		sent := t.sendDue(now)
		switch {
		case now < end:
		case t.busy == 0 && (t.loop == closedLoop || t.next == len(t.record.due)):
			t.record.usage = append(t.record.usage, usage{at: now, cpu: threadCPU(), watching: watching})
			return nil
		case now > end+int64(t.timeout):
			t.giveUp()
		}
		if now-t.swept >= int64(housekeeping) {
			t.sweep(now)
		}
		var events []unix.EpollEvent
		if nap := t.nap(now); nap > 0 && !sent {
			events, watched = t.poller.Sleep(nap), false
		} else {
			events = t.poller.Poll()
			watched = !sent && len(events) == 0
		}
		for _, e := range events {
			t.handle(&t.conns[e.Fd], e.Fd, e.Events)
			t.sendDue(t.now())
		}
	}
}

// giveUp leaves the requests unsent that are not sent yet.
func (t *thread) giveUp() {
	if t.next == len(t.record.due) {
		return
	}
	t.next = len(t.record.due)
	t.givenUp.All = len(t.conns)
	for _, k := range t.conns {
		switch k.state {
		case waitingFor:
			t.givenUp.Waiting++
		case down, connecting, greeting:
			t.givenUp.Down++
		}
	}
}

// nap returns how long the thread may sleep. It returns 0 if the thread must poll.
func (t *thread) nap(now int64) time.Duration {
	if t.busy > 0 && t.spin >= 0 {
		return 0
	}
	until := int64(t.total)
	if t.loop == openLoop && t.next < len(t.record.due) {
		until = t.record.due[t.next]
	}
	if until <= now { // nothing can be sent before an answer or housekeeping
		return longestSleep
	}
	return min(time.Duration(until-now)-max(t.spin, 0), longestSleep)
}

// sendDue sends the due requests for which a connection is free.
func (t *thread) sendDue(now int64) (sent bool) {
	if t.loop == closedLoop {
		return t.sendFree(now)
	}
	due := t.record.due
	for t.next < len(due) && due[t.next] <= now {
		id := t.free.pop(t.conns)
		if id < 0 {
			// All requests that are due wait for a connection. This does not
			// count as a lag of the client.
			for t.seen = max(t.seen, t.next); t.seen < len(due) && due[t.seen] <= now; t.seen++ {
				t.record.latency[t.seen] = waiting
			}
			return sent
		}
		i := t.next
		t.next++
		now = t.now()
		if t.record.latency[i] == unsent {
			t.record.lag[i] = uint32(min(now-due[i], int64(noLag)-1))
		}
		t.send(id, i, now)
		sent = true
	}
	return sent
}

// sendFree sends one request on every free connection, as a closed loop does.
func (t *thread) sendFree(now int64) (sent bool) {
	for now >= 0 && now < int64(t.total) {
		id := t.free.pop(t.conns)
		if id < 0 {
			return sent
		}
		now = t.now()
		t.record.due = append(t.record.due, now)
		t.record.latency = append(t.record.latency, unsent)
		t.send(id, len(t.record.due)-1, now)
		sent = true
	}
	return sent
}

// threadCPU returns the CPU time of the calling thread in ns.
func threadCPU() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
