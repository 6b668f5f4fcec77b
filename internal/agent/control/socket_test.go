package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// startServer starts a server. It returns a client for it, and a function that
// stops the server.
func startServer(t *testing.T, l *Ledger) (*Client, func()) {
	t.Helper()
	return servedBy(t, l, &fakeOperator{})
}

func servedBy(t *testing.T, l *Ledger, o Operator) (*Client, func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tenon-control-") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, dir, l, o, slog.New(slog.DiscardHandler)) }()
	stop := func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	c := NewClient(dir)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for range 1000 {
		if _, err = c.Status(ctx); err == nil {
			return c, stop
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal(err)
	return nil, nil
}

func TestTheSocketAnswers(t *testing.T) {
	l := NewLedger("v1")
	l.Observe(measuredTick(time.Second, 800), nil)
	l.Observe(addWrite(measuredTick(2*time.Second, 700), nil), nil)
	c, stop := startServer(t, l)
	defer stop()
	info, err := os.Stat(c.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	s, err := c.Status(t.Context())
	if err != nil || s.String() != l.Status().String() {
		t.Errorf("%v, %v", s, err)
	}
	e, err := c.ExplainWorkload(t.Context(), "web.service")
	if want, _ := l.ExplainWorkload("web.service"); err != nil || e.String() != want.String() {
		t.Errorf("%v, %v", e, err)
	}
	e, err = c.ExplainKnob(t.Context(), "batch.slice cpu.max")
	if want, _ := l.ExplainKnob(quota); err != nil || e.String() != want.String() || len(e.Knobs) != 1 {
		t.Errorf("%v, %v", e, err)
	}
	var unknown *Unknown
	if _, err = c.ExplainWorkload(t.Context(), "nginx"); !errors.As(err, &unknown) || unknown.Name != "nginx" || !reflect.DeepEqual(unknown.Known, l.names()) {
		t.Errorf("%v", err)
	}
	if _, err = c.ExplainKnob(t.Context(), "nginx"); err == nil || !strings.Contains(err.Error(), "want a cgroup and a file") {
		t.Errorf("%v", err)
	}
}

func TestTicksAreFollowedUntilTheAgentStops(t *testing.T) {
	l := NewLedger("v1")
	c, stop := startServer(t, l)
	seenTurns := make(chan uint64, 100)
	ended := make(chan error, 1)
	go func() { ended <- c.Follow(t.Context(), func(s Status) { seenTurns <- s.Ticks }) }()
	if got := <-seenTurns; got != 0 {
		t.Errorf("the first status must be the present one, got turn %d", got)
	}
	for i := range 3 {
		l.Observe(measuredTick(time.Duration(i)*time.Second, 800), nil)
		if got := <-seenTurns; got != uint64(i+1) {
			t.Errorf("turn %d, want %d", got, i+1)
		}
	}
	stop()
	if err := <-ended; err == nil || err.Error() != "tenond has stopped" {
		t.Errorf("%v", err)
	}
}

func TestNoAgentIsSaidWithWhatToDo(t *testing.T) {
	dir, err := os.MkdirTemp("", "tenon-control-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c := NewClient(dir)
	for range 2 {
		if _, err := c.Status(t.Context()); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "systemctl start tenond") {
			t.Errorf("%v", err)
		}
		// A dead agent leaves its socket behind.
		left, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.path, Net: "unix"})
		if err != nil {
			continue
		}
		left.SetUnlinkOnClose(false)
		left.Close()
	}
}

// TestARemovedSocketIsMadeAgain removes the socket. The server must make it
// again. In one case the directory of the socket is missing for a while.
func TestARemovedSocketIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(os.Mkdir(dir, 0o700))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- serveAgain(ctx, time.Millisecond, dir, NewLedger("v1"), &fakeOperator{}, slog.New(slog.DiscardHandler))
	}()
	answers := func() {
		t.Helper()
		// The socket file exists a moment before the socket accepts
		// connections.
		for {
			if conn, err := net.Dial("unix", SocketPath(dir)); err == nil {
				do(conn.Close())
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	answers()
	do(os.Remove(SocketPath(dir)))
	answers()
	do(os.RemoveAll(dir))
	time.Sleep(10 * time.Millisecond)
	do(os.Mkdir(dir, 0o700))
	answers()
	stop()
	do(<-ended)
}

// TestHalfARequestKeepsNoOtherOut sends half the body of a request, and half its
// header, many times. The server must answer others meanwhile, and end the first.
func TestHalfARequestKeepsNoOtherOut(t *testing.T) {
	c, stop := startServer(t, NewLedger("v1"))
	defer stop()
	var held []net.Conn
	for range 2 * maxConnections {
		for _, text := range []string{"POST /v1/qos HTTP/1.1\r\nHost: tenond\r\nContent-Length: 20\r\n\r\nhalf", "GET /v1/status HT"} {
			conn, err := net.Dial("unix", c.path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			held = append(held, conn)
		}
		if _, err := c.Status(t.Context()); err != nil {
			t.Fatalf("beside %d connections: %v", len(held), err)
		}
	}
	for i, conn := range held[:2*maxConnections] {
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is still open", i)
		}
	}
}

// TestAStoppedAgentIsNamed has an agent that accepts connections and never
// answers, as one that was stopped with SIGSTOP, and one that stops in the middle
// of an answer. Each request ends with an error about the agent.
func TestAStoppedAgentIsNamed(t *testing.T) {
	for name, begin := range map[string]string{
		"without an answer":       "",
		"in the middle of one":    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"version\": ",
		"in the middle of a head": "HTTP/1.1 200",
	} {
		dir, err := os.MkdirTemp("", "tenon-control-") // the path of t.TempDir is too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		socket, err := net.Listen("unix", SocketPath(dir))
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		go func() {
			for {
				connection, err := socket.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { connection.Close() }) // an unreachable connection would be closed at any time
				go func() {
					_, _ = connection.Read(make([]byte, 4096)) // the request
					_, _ = connection.Write([]byte(begin))
				}()
			}
		}()
		c := NewClient(dir)
		c.answer, c.tick = 50*time.Millisecond, 50*time.Millisecond
		requests := map[string]func() error{
			"status":  func() error { _, err := c.Status(t.Context()); return err },
			"explain": func() error { _, err := c.ExplainWorkload(t.Context(), "web"); return err },
			"qos":     func() error { _, err := c.QOS(t.Context()); return err },
			"pin":     func() error { _, err := c.Pin(t.Context(), ""); return err },
			"top":     func() error { return c.Follow(t.Context(), func(Status) {}) },
		}
		for what, ask := range requests {
			if err := ask(); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("%s of an agent that stopped %s: %v", what, name, err)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := NewClient(t.TempDir()).Status(ctx); errors.Is(err, ErrNoAnswer) {
		t.Errorf("a request that its caller ended: %v", err)
	}
}
