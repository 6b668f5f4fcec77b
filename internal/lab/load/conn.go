package load

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/load/fate"
	"tenon.sh/tenon/internal/lab/load/protocol"
	"tenon.sh/tenon/internal/lab/load/socket"
)

type connState uint8

const (
	down       connState = iota // to be reopened at retryAt
	connecting                  // connection attempt has begun
	greeting                    // the first message (protocol.Requests.Hello) has no answer yet
	idle                        // free for a request
	waitingFor                  // one request has no answer yet
)

// A conn is one keep-alive connection. It carries one request at a time.
type conn struct {
	fd      int
	state   connState
	queued  bool  // its id is in the ring of free connections
	request int   // index in the record
	sentAt  int64 // ns
	retryAt int64 // ns
	answer  protocol.Answer
	got     int64  // bytes of the answer so far
	begin   []byte // the first of them
}

// beginLength is the number of bytes of each answer that are kept, so that a
// failure can quote them.
const beginLength = 80

// note remembers what has arrived of the answer.
func (k *conn) note(piece []byte) {
	k.got += int64(len(piece))
	if room := beginLength - len(k.begin); room > 0 {
		k.begin = append(k.begin, piece[:min(room, len(piece))]...)
	}
}

// cause returns why the present request has no latency.
func (k *conn) cause(kind fate.Kind, reason string) fate.Cause {
	return fate.Cause{Kind: kind, Reason: reason, Begun: k.got > 0, Bytes: k.got, FirstLine: fate.FirstLine(k.begin)}
}

// A ring is the queue of free connections. The next one to be used is the one that has
// been idle longest, so that no connection reaches the server's keep-alive timeout.
type ring struct {
	ids        []int32
	head, size int
}

func (r *ring) push(id int32, conns []conn) {
	if conns[id].queued {
		return
	}
	conns[id].queued = true
	tail := r.head + r.size
	if tail >= len(r.ids) {
		tail -= len(r.ids)
	}
	r.ids[tail] = id
	r.size++
}

// pop returns an idle connection, or -1. It drops connections that are busy.
func (r *ring) pop(conns []conn) int32 {
	for r.size > 0 {
		id := r.ids[r.head]
		if r.head++; r.head == len(r.ids) {
			r.head = 0
		}
		r.size--
		conns[id].queued = false
		if conns[id].state == idle {
			return id
		}
	}
	return -1
}

// send writes request i on an idle connection.
func (t *thread) send(id int32, i int, now int64) {
	k := &t.conns[id]
	k.state, k.request, k.sentAt = waitingFor, i, now
	t.busy++
	t.record.latency[i] = pending
	k.answer.Reset()
	k.got, k.begin = 0, k.begin[:0]
	// An empty socket buffer accepts a request of some hundred bytes at once,
	// unless the connection is broken. So a request that is not written completely
	// counts as failed.
	request := t.target.Load[0]
	if n := len(t.target.Load); n > 1 {
		request = t.target.Load[t.draw.IntN(n)]
	}
	switch n, errno := socket.Send(k.fd, request); {
	case errno != 0:
		t.fail(id, k.cause(fate.Write, errno.Error()))
	case n != len(request):
		t.fail(id, k.cause(fate.Write, "the buffer of the socket has no room for the whole request"))
	}
}

// handle processes the events of a socket.
func (t *thread) handle(k *conn, id int32, events uint32) {
	switch k.state {
	case connecting:
		if events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
			return // event of the connection's former socket, from the same batch
		}
		err := socket.PendingError(k.fd)
		if err == nil {
			err = t.poller.Connected(k.fd, id)
		}
		if err != nil {
			t.failConnect(id, err)
			return
		}
		t.greet(id)
		return
	case down: // event of a socket that was closed earlier in this batch
		return
	}
	n, errno := socket.Receive(k.fd, t.buffer)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
	case k.state == greeting:
		t.greeted(id, n, errno)
	case k.state == idle:
		// The server closed an idle connection, or sent an answer without a request.
		// In the second case, later answers would seem to answer other requests.
		t.reconnect(id)
	case errno != 0:
		t.fail(id, k.cause(fate.Read, errno.Error()))
	default:
		k.note(t.buffer[:n])
		done, err := k.answer.Feed(t.buffer[:n])
		switch {
		case err != nil:
			t.fail(id, k.cause(fate.Answer, err.Error()))
		case done:
			t.complete(id)
		case n == 0:
			t.fail(id, k.cause(fate.Read, "closed by the service"))
		}
	}
}

// complete records the latency of a complete answer and frees the connection.
func (t *thread) complete(id int32) {
	k := &t.conns[id]
	now, outcome := t.now(), k.answer.Outcome()
	if !outcome.Failed {
		const most = int64(longest / LatencyUnit)
		t.record.latency[k.request] = uint32(min((now-t.record.due[k.request]+int64(LatencyUnit)/2)/int64(LatencyUnit), most))
	} else {
		t.record.latency[k.request] = t.record.fate(k.cause(fate.Status, outcome.Refusal))
	}
	t.busy--
	k.state = idle
	if outcome.Closes {
		t.reconnect(id)
		return
	}
	t.free.push(id, t.conns)
}

// fail records why the request has no latency, and opens its connection again.
func (t *thread) fail(id int32, why fate.Cause) {
	t.record.latency[t.conns[id].request] = t.record.fate(why)
	t.busy--
	t.open(id)
}

// reconnect replaces an idle connection that the server closed.
func (t *thread) reconnect(id int32) {
	t.record.reconnects++
	t.open(id)
}

// open closes the socket of connection id and opens a new one.
func (t *thread) open(id int32) {
	k := &t.conns[id]
	if k.fd >= 0 {
		_ = unix.Close(k.fd) // close also removes it from the epoll set
		k.fd = -1
	}
	fd, connected, err := socket.Open(t.addr)
	if err == nil {
		k.fd = fd
		err = t.poller.Add(fd, id, !connected)
	}
	if err != nil {
		t.failConnect(id, err)
		return
	}
	if !connected {
		k.state, k.sentAt = connecting, t.now()
		return
	}
	t.greet(id)
}

// greet sends the first message on a new connection. If the protocol has none,
// the connection is free for a request.
func (t *thread) greet(id int32) {
	k := &t.conns[id]
	if t.target.Hello == nil {
		k.state = idle
		t.free.push(id, t.conns)
		return
	}
	k.state, k.sentAt = greeting, t.now()
	k.answer.Reset()
	if n, errno := socket.Send(k.fd, t.target.Hello); errno != 0 || n != len(t.target.Hello) {
		t.refuse(id, errno)
	}
}

// greeted processes n received bytes of the answer to the first message.
func (t *thread) greeted(id int32, n int, errno unix.Errno) {
	k := &t.conns[id]
	if errno != 0 || n == 0 {
		t.refuse(id, errno)
		return
	}
	done, err := k.answer.Feed(t.buffer[:n])
	switch {
	case err != nil:
		t.refuse(id, err)
	case done && k.answer.Outcome().Failed:
		t.refuse(id, errGreeting)
	case done:
		k.state = idle
		t.free.push(id, t.conns)
	}
}

var errLate = errors.New("no answer in time")

var errGreeting = errors.New("the service refuses the first message")

// refuse ends a connection whose first message got no good answer.
func (t *thread) refuse(id int32, err error) {
	if errors.Is(err, unix.Errno(0)) {
		err = errGreeting
	}
	t.refusal = err
	t.failConnect(id, err)
}

// awaitGreeted waits until the first message of each connection has a good
// answer.
func (t *thread) awaitGreeted(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for id := range t.conns {
		for t.conns[id].state == greeting {
			if time.Now().After(deadline) {
				return fmt.Errorf("load: %s: no answer to the first message within %v", t.describe(id), timeout)
			}
			for _, e := range t.poller.Sleep(longestSleep) {
				t.handle(&t.conns[e.Fd], e.Fd, e.Events)
			}
		}
		if t.conns[id].state != idle {
			return fmt.Errorf("load: %s: %w", t.describe(id), t.refusal)
		}
	}
	return nil
}

// failConnect records why a connection could not be made. sweep tries again.
func (t *thread) failConnect(id int32, err error) {
	k := &t.conns[id]
	if k.fd >= 0 {
		_ = unix.Close(k.fd)
		k.fd = -1
	}
	now := t.now()
	t.record.connect = append(t.record.connect, failedConnect{now, t.record.fate(fate.Cause{Kind: fate.Connect, Reason: err.Error()})})
	k.state, k.retryAt = down, now+int64(retryAfter)
}

// sweep ends requests and connection attempts that took too long. It opens
// broken connections again.
func (t *thread) sweep(now int64) {
	t.swept = now
	for id := range t.conns {
		k := &t.conns[id]
		late := now-k.sentAt > int64(t.timeout)
		switch {
		case k.state == waitingFor && late:
			t.fail(int32(id), k.cause(fate.Timeout, ""))
		case (k.state == connecting || k.state == greeting) && late:
			t.failConnect(int32(id), errLate)
		case k.state == down && now >= k.retryAt:
			t.open(int32(id))
		}
	}
}
