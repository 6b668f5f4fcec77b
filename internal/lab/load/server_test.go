package load

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A server is a tiny HTTP/1.1 server that misbehaves on demand.
type server struct {
	behaviour
	url      string
	listener net.Listener
	begun    time.Time
	mu       sync.Mutex
	conns    map[net.Conn]bool
	running  sync.WaitGroup
}

// A behaviour defines how a server answers; the zero value is a good server.
type behaviour struct {
	answer string // default: status 200 with a body of two bytes
	// At the end of each period of stallEvery, the server holds requests for up
	// to stall.
	stall, stallEvery time.Duration
	delay             time.Duration // before each answer
	hangUpAfter       int           // number of answers on a connection; the server closes it after the next request; 0: never
	idleClose         time.Duration // closes a connection after this time without a request
	silent            bool
}

const plainAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func newServer(t *testing.T, b behaviour) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newServerOn(t, b, listener)
}

func newServerOn(t *testing.T, b behaviour, listener net.Listener) *server {
	t.Helper()
	if b.answer == "" {
		b.answer = plainAnswer
	}
	s := &server{behaviour: b, listener: listener, url: fmt.Sprintf("http://%v/", listener.Addr()), begun: time.Now(), conns: map[net.Conn]bool{}}
	s.running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			s.running.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(s.close)
	return s
}

func (s *server) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for n := 1; ; n++ {
		if s.idleClose > 0 {
			_ = c.SetReadDeadline(time.Now().Add(s.idleClose))
		}
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if line == "\r\n" {
				break
			}
		}
		if s.stallEvery > 0 {
			if left := s.stallEvery - time.Since(s.begun)%s.stallEvery; left < s.stall {
				time.Sleep(left)
			}
		}
		time.Sleep(s.delay)
		if s.silent {
			continue
		}
		if s.hangUpAfter > 0 && n > s.hangUpAfter {
			return
		}
		if _, err := c.Write([]byte(s.answer)); err != nil || strings.Contains(s.answer, "Connection: close") {
			return
		}
	}
}
