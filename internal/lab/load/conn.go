package load

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/load/protocol"
	"tenon.sh/tenon/internal/lab/load/socket"
)

type connState uint8

const (
	down       connState = iota // to be reopened at retryAt
	connecting                  // connection attempt has begun
	greeting                    // the first message (Target.Hello) has no answer yet
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
	// An empty socket buffer accepts a request of some hundred bytes at once,
	// unless the connection is broken. So a request that is not written completely
	// counts as failed.
	request := t.target.Requests[0]
	if n := len(t.target.Requests); n > 1 {
		request = t.target.Requests[t.draw.IntN(n)]
	}
	if n, errno := socket.Send(k.fd, request); errno != 0 || n != len(request) {
		t.fail(id, failedWrite)
	}
}

// handle processes the events of a socket.
func (t *thread) handle(k *conn, id int32, events uint32) {
	switch k.state {
	case connecting:
		if events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
			return // event of the connection's former socket, from the same batch
		}
		if socket.PendingError(k.fd) != nil {
			t.failConnect(id)
		} else if t.poller.Connected(k.fd, id) == nil {
			t.greet(id)
		}
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
		t.fail(id, failedRead)
	case n == 0 && k.answer.EOF():
		t.complete(id)
	case n == 0:
		t.fail(id, failedRead)
	default:
		done, err := k.answer.Feed(t.buffer[:n])
		if err != nil {
			t.fail(id, failedRead)
		} else if done {
			t.complete(id)
		}
	}
}

// complete records the latency of a complete answer and frees the connection.
func (t *thread) complete(id int32) {
	k := &t.conns[id]
	now := t.now()
	if !k.answer.Failed() {
		const most = int64(longest / latencyUnit)
		t.record.latency[k.request] = uint32(min((now-t.record.due[k.request]+int64(latencyUnit)/2)/int64(latencyUnit), most))
	} else {
		t.record.latency[k.request] = failedStatus
	}
	t.busy--
	k.state = idle
	if k.answer.Closes() {
		t.reconnect(id)
		return
	}
	t.free.push(id, t.conns)
}

// fail records why the request has no latency, and opens its connection again.
func (t *thread) fail(id int32, fate uint32) {
	t.record.latency[t.conns[id].request] = fate
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
	fd, connected, err := socket.Open(t.target.Addr)
	if err == nil {
		k.fd = fd
		err = t.poller.Add(fd, id, !connected)
	}
	if err != nil {
		t.failConnect(id)
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
	case done && k.answer.Failed():
		t.refuse(id, errGreeting)
	case done:
		k.state = idle
		t.free.push(id, t.conns)
	}
}

var errGreeting = errors.New("the service refuses the first message")

// refuse ends a connection whose first message got no good answer.
func (t *thread) refuse(id int32, err error) {
	if errors.Is(err, unix.Errno(0)) {
		err = errGreeting
	}
	t.refusal = err
	t.failConnect(id)
}

// awaitGreeted waits until the first message of each connection has a good
// answer.
func (t *thread) awaitGreeted(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for id := range t.conns {
		for t.conns[id].state == greeting {
			if time.Now().After(deadline) {
				return fmt.Errorf("load: connection %d of %d: no answer to the first message within %v", id+1, len(t.conns), timeout)
			}
			for _, e := range t.poller.Sleep(longestSleep) {
				t.handle(&t.conns[e.Fd], e.Fd, e.Events)
			}
		}
		if t.conns[id].state != idle {
			return fmt.Errorf("load: connection %d of %d: %w", id+1, len(t.conns), t.refusal)
		}
	}
	return nil
}

func (t *thread) failConnect(id int32) {
	k := &t.conns[id]
	if k.fd >= 0 {
		_ = unix.Close(k.fd)
		k.fd = -1
	}
	now := t.now()
	t.record.connect = append(t.record.connect, now)
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
			t.fail(int32(id), failedTimeout)
		case (k.state == connecting || k.state == greeting) && late:
			t.failConnect(int32(id))
		case k.state == down && now >= k.retryAt:
			t.open(int32(id))
		}
	}
}
