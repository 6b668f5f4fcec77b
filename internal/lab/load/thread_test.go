package load

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/load/protocol"
	"tenon.sh/tenon/internal/lab/load/socket"
)

// TestSendingAndReceivingDoNotAllocate checks that a run allocates no memory,
// because a garbage collection would stop the sending threads.
func TestSendingAndReceivingDoNotAllocate(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := socket.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	const requests = 1000
	s := &thread{
		target: protocol.Target{Requests: protocol.Requests{Load: [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}}}, timeout: time.Second, start: time.Now().Add(-time.Second), poller: p,
		buffer: make([]byte, 4096), conns: []conn{{fd: ends[0], state: idle, answer: &protocol.HTTP{}, begin: make([]byte, 0, beginLength)}}, free: ring{ids: make([]int32, 1)},
		record: record{due: make([]int64, requests), latency: filled(requests, unsent), lag: filled(requests, noLag)},
	}
	defer s.close()
	defer unix.Close(ends[1])
	if err := p.Add(ends[0], 0, false); err != nil {
		t.Fatal(err)
	}
	s.free.push(0, s.conns)
	answer, request := []byte("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 2\r\n\r\nok"), make([]byte, 4096)
	allocations := testing.AllocsPerRun(500, func() {
		if !s.sendDue(s.now()) {
			t.Fatal("did not send")
		}
		if n, _ := socket.Receive(ends[1], request); n != len(s.target.Load[0]) {
			t.Fatalf("%d bytes arrived", n)
		}
		if n, _ := socket.Send(ends[1], answer); n != len(answer) {
			t.Fatalf("%d bytes answered", n)
		}
		for _, e := range p.Sleep(time.Second) {
			s.handle(&s.conns[e.Fd], e.Fd, e.Events)
		}
		s.sweep(s.now())
		p.Poll()
		threadCPU()
	})
	if allocations > 0 {
		t.Errorf("%v allocations per request", allocations)
	}
	if s.next < 500 || s.record.latency[0] >= noLatency || s.busy != 0 {
		t.Errorf("%d requests sent, first fate %d, %d busy", s.next, s.record.latency[0], s.busy)
	}
}

func TestFreeConnectionsAreUsedInTurn(t *testing.T) {
	conns := make([]conn, 3)
	r := ring{ids: make([]int32, 3)}
	for i := range conns {
		conns[i].state = idle
		r.push(int32(i), conns)
	}
	first := r.pop(conns)
	r.push(first, conns)
	r.push(first, conns) // the second push adds nothing
	conns[1].state = down
	var order []int32
	for id := r.pop(conns); id >= 0; id = r.pop(conns) {
		order = append(order, id)
	}
	if first != 0 || len(order) != 2 || order[0] != 2 || order[1] != 0 {
		t.Errorf("first %d, then %v; want 0, then 2 and 0", first, order)
	}
}
