package load

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A server is a tiny server whose behaviour a test chooses.
type server struct {
	behaviour
	url      string
	listener net.Listener
	begun    time.Time
	mu       sync.Mutex
	conns    map[net.Conn]bool
	running  sync.WaitGroup
}

// A behaviour defines how a server answers. The zero value answers every
// request at once.
type behaviour struct {
	// speak reads a request and returns the answer. If it is nil, the server
	// speaks HTTP/1.1 and sends answer.
	speak  func(in *bufio.Reader) (answer string, err error)
	scheme string // http by default
	answer string // default: status 200 with a body of two bytes
	// At the end of each period of stallEvery, the server holds requests for up
	// to the time stall.
	stall, stallEvery time.Duration
	delay             time.Duration // before each answer
	hangUpAfter       int           // number of answers on a connection; the server closes it after the next request; 0: never
	idleClose         time.Duration // closes a connection after this time without a request; a greeting comes first, however long it takes
	silent            bool
	closes            bool // the connection after each answer
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
	s := &server{behaviour: b, listener: listener, url: fmt.Sprintf("%s://%v/", cmp.Or(b.scheme, "http"), listener.Addr()), begun: time.Now(), conns: map[net.Conn]bool{}}
	if b.scheme == "postgres" {
		s.url = fmt.Sprintf("postgres://tenon@%v/tenon", listener.Addr())
	}
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
		if s.idleClose > 0 && (n > 1 || s.scheme != "postgres") {
			_ = c.SetReadDeadline(time.Now().Add(s.idleClose))
		}
		answer, err := s.request(in)
		if err != nil {
			return
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
		if _, err := c.Write([]byte(answer)); err != nil || s.closes || strings.Contains(s.answer, "Connection: close") {
			return
		}
	}
}

// request reads a request and returns the answer.
func (s *server) request(in *bufio.Reader) (answer string, err error) {
	if s.speak != nil {
		return s.speak(in)
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil || line == "\r\n" {
			return s.answer, err
		}
	}
}

// speakRedis answers a command of the Redis protocol. It answers like a cache
// that has two bytes under each key.
func speakRedis(in *bufio.Reader) (string, error) {
	var words []string
	var n, length int
	if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
		return "", err
	}
	for range n {
		if _, err := fmt.Fscanf(in, "$%d\r\n", &length); err != nil {
			return "", err
		}
		word := make([]byte, length+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return "", err
		}
		words = append(words, string(word[:length]))
	}
	switch words[0] {
	case "GET":
		return "$2\r\nok\r\n", nil
	case "SET":
		return "+OK\r\n", nil
	case "PING":
		return "+PONG\r\n", nil
	}
	return "-ERR unknown command\r\n", nil
}

// speakMemcached answers a line of memcached's text protocol. It answers like a
// cache that has two bytes under each key.
func speakMemcached(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	switch words := strings.Fields(line); {
	case len(words) == 2 && words[0] == "get":
		return "VALUE " + words[1] + " 0 2\r\nok\r\nEND\r\n", nil
	case len(words) == 5 && words[0] == "set":
		_, err := in.ReadString('\n')
		return "STORED\r\n", err
	case line == "version\r\n":
		return "VERSION 1\r\n", nil
	}
	return "ERROR\r\n", nil
}

// postgresMessage encodes a message of a PostgreSQL server.
func postgresMessage(kind, content string) string {
	return kind + string(binary.BigEndian.AppendUint32(nil, uint32(4+len(content)))) + content
}

// speakPostgres answers a message of a PostgreSQL client. It answers as if
// every query had one row.
func speakPostgres(in *bufio.Reader) (string, error) {
	ready := postgresMessage("Z", "I")
	first, err := in.Peek(1)
	if err != nil {
		return "", err
	}
	if first[0] != 0 { // the first message on a connection has no type
		_, _ = in.Discard(1)
	}
	var length uint32
	if err := binary.Read(in, binary.BigEndian, &length); err != nil {
		return "", err
	}
	if _, err := in.Discard(int(length) - 4); err != nil {
		return "", err
	}
	if first[0] == 0 {
		return postgresMessage("R", "\x00\x00\x00\x00") + postgresMessage("S", "TimeZone\x00UTC\x00") + postgresMessage("K", "12345678") + ready, nil
	}
	return postgresMessage("T", "\x00\x00") + postgresMessage("D", "\x00\x01\x00\x00\x00\x02ok") + postgresMessage("C", "SELECT 1\x00") + ready, nil
}
