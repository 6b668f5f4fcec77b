package listen

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serve starts a server, and returns its address. Its handler answers with the
// length of the body. Fields of o that are not set have values for tests.
func serve(t *testing.T, network string, o Options) net.Addr {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	socket, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	if o.Handler == nil {
		o.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			fmt.Fprintf(w, "%d bytes", n)
		})
	}
	if o.Connections == 0 {
		o.Connections = 4
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.Idle == 0 {
		o.Idle = time.Minute
	}
	o.Log = slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, socket, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return socket.Addr()
}

// dial connects and sends a text.
func dial(t *testing.T, to net.Addr, text string) net.Conn {
	t.Helper()
	c, err := net.Dial(to.Network(), to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil && text != "" {
		t.Fatal(err)
	}
	return c
}

const get = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

// answer returns what a connection delivers until its first pause or its end.
func answer(c net.Conn) string {
	b := make([]byte, 4096)
	n, _ := c.Read(b)
	return string(b[:n])
}

// isClosed waits until the server has closed a connection.
func isClosed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, err := io.Copy(io.Discard, c)
	return !strings.Contains(fmt.Sprint(err), "timeout")
}

// TestHeldConnectionsKeepNoOtherOut holds many more connections than the server
// takes, in each way of waiting. A new client must get its answer each time, and
// the connections that came first must be closed.
func TestHeldConnectionsKeepNoOtherOut(t *testing.T) {
	for name, sends := range map[string]string{
		"nothing sent":     "",
		"half a header":    "GET / HTTP/1.1\r\nHost: loc",
		"an answered one":  get,
		"half a body":      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf",
		"half a long body": "PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\nhalf",
	} {
		for _, network := range []string{"tcp", "unix"} {
			for _, body := range []int64{1 << 10, 1 << 20} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, network, body), func(t *testing.T) {
					to := serve(t, network, Options{Body: body})
					var held []net.Conn
					for range 40 {
						held = append(held, dial(t, to, sends))
						if got := answer(dial(t, to, get)); !strings.HasPrefix(got, "HTTP/1.1 200 OK") {
							t.Fatalf("after %d held connections: %q", len(held), got)
						}
					}
					for i, c := range held[:30] {
						if !isClosed(c) {
							t.Fatalf("held connection %d is still open", i)
						}
					}
				})
			}
		}
	}
}

// TestTheConnectionThatWaitsLongestGoesFirst uses the older of two connections
// again, so that the other one has waited longer.
func TestTheConnectionThatWaitsLongestGoesFirst(t *testing.T) {
	to := serve(t, "tcp", Options{Connections: 2, Body: 1})
	older, newer := dial(t, to, get), dial(t, to, get)
	for i, c := range []net.Conn{older, newer, older} {
		if i == 2 {
			if _, err := io.WriteString(c, get); err != nil {
				t.Fatal(err)
			}
		}
		if got := answer(c); !strings.Contains(got, "200 OK") {
			t.Fatal(got)
		}
	}
	dial(t, to, get)
	if !isClosed(newer) {
		t.Error("the connection that had waited longest is open")
	}
	_, err := io.WriteString(older, get)
	if got := answer(older); err != nil || !strings.Contains(got, "200 OK") {
		t.Errorf("the connection that was used last: %q, %v", got, err)
	}
}

// TestABusyConnectionStays fills all places with requests whose handlers run. A
// further connection is closed, and these get their answers.
func TestABusyConnectionStays(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	to := serve(t, "tcp", Options{Connections: 2, Body: 1, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-release
	})})
	busy := []net.Conn{dial(t, to, get), dial(t, to, get)}
	<-running
	<-running
	if got := try(to); got != "" {
		t.Errorf("a third connection was taken: %q", got)
	}
	close(release)
	for _, c := range busy {
		if got := answer(c); !strings.Contains(got, "200 OK") {
			t.Errorf("%q", got)
		}
	}
}

// TestASlowReaderIsReplaced fills all places with clients that ask for more than
// the kernel holds for them, and do not read it.
func TestASlowReaderIsReplaced(t *testing.T) {
	to := serve(t, "tcp", Options{Connections: 2, Body: 1, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/much" {
			_, _ = w.Write(make([]byte, 64<<20))
		}
	})})
	for range 2 {
		dial(t, to, strings.Replace(get, "/ ", "/much ", 1))
	}
	for end := time.Now().Add(30 * time.Second); !strings.Contains(try(to), "200 OK"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("clients that do not read keep all places")
		}
	}
}

// try asks on a new connection, and returns the answer. It is empty if the server
// closes the connection at once.
func try(to net.Addr) string {
	c, err := net.Dial(to.Network(), to.String())
	if err != nil {
		return ""
	}
	defer c.Close()
	_, _ = io.WriteString(c, get) // if the connection is closed, there is no answer
	return answer(c)
}

// TestHalfABodyEnds checks that the time and the length of a body are bounded,
// and that the handler does not run without the body. A body that is malformed is
// not taken for one that is late.
func TestHalfABodyEnds(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"half":         {"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf", "408 Request Timeout"},
		"half a chunk": {"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", "408 Request Timeout"},
		"no chunk":     {"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400 Bad Request"},
		"no length":    {"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n;x\r\n", "400 Bad Request"},
		"huge length":  {"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", "400 Bad Request"},
		"no end of it": {"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd", "400 Bad Request"},
		"too long":     {"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n01234567890123456789", "413 Request Entity Too Large"},
	} {
		t.Run(name, func(t *testing.T) {
			to := serve(t, "unix", Options{Body: 10, Patience: 300 * time.Millisecond, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("the handler ran")
			})})
			client := dial(t, to, c.text)
			if got := answer(client); !strings.Contains(got, c.want) || !isClosed(client) {
				t.Errorf("%q, want %s and the end", got, c.want)
			}
		})
	}
}

// TestAHandlerMayRunLongerThanAClientMaySend runs a handler for several times the
// patience. Its request must not be cancelled meanwhile.
func TestAHandlerMayRunLongerThanAClientMaySend(t *testing.T) {
	cancelled := make(chan error, 1)
	to := serve(t, "unix", Options{Body: 1, Patience: 20 * time.Millisecond, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		time.Sleep(100 * time.Millisecond)
		cancelled <- r.Context().Err()
	})})
	dial(t, to, get)
	if err := <-cancelled; err != nil {
		t.Error(err)
	}
}

func TestAForeignHostIsRefusedOnLoopback(t *testing.T) {
	const loopback, other = "127.0.0.1", "192.0.2.7"
	for _, c := range []struct {
		local, host string
		want        bool
	}{
		{loopback, "localhost:9847", true}, {loopback, "LOCALHOST", true}, {loopback, "tenon.localhost:9847", true},
		{loopback, "127.0.0.1:9847", true}, {loopback, "[::1]:9847", true}, {loopback, "[::1]", true}, {loopback, "10.1.2.3", true},
		{loopback, "", true}, {loopback, "metrics.example.org:9847", true}, {loopback, "metrics.example.org.", true},
		{loopback, "evil.example.org:9847", false}, {loopback, "localhost.example.org", false}, {loopback, "127.0.0.1.example.org:9847", false},
		{"::1", "evil.example.org", false}, {"127.3.4.5", "evil.example.org", false},
		{other, "tenond.tenon-system.svc:9847", true}, {other, "node-1:9847", true}, {other, "192.0.2.7:9847", true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = c.host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(c.local), Port: 9847})))
		if err := namesOf("metrics.example.org").check(r); (err == nil) != c.want {
			t.Errorf("host %q at %s: %v", c.host, c.local, err)
		}
	}
	to := serve(t, "tcp", Options{Body: 1})
	if got := answer(dial(t, to, "GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n")); !strings.Contains(got, "403 Forbidden") || !strings.Contains(got, "evil.example.org") {
		t.Errorf("%q", got)
	}
}
