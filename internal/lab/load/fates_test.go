package load

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/load/protocol"
)

// TestTheFateOfARequestKeepsItsCause sends requests to servers whose answers cannot
// be used. The reason stands in one line of the void run, and with one error at the
// most. A line must not blame the service for what the client did.
func TestTheFateOfARequestKeepsItsCause(t *testing.T) {
	closing := func(answer string) behaviour { return behaviour{answer: answer, closes: true} }
	for name, c := range map[string]struct {
		server  behaviour
		timeout time.Duration
		want    string
		not     string
	}{
		"gzip and chunked":  {server: behaviour{answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"}, want: `: transfer-encoding "gzip, chunked": only chunked is understood (the first such answer has 65 bytes and begins with "HTTP/1.1 200 OK")`},
		"gzip, two lines":   {server: behaviour{answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}, want: `transfer-encoding "gzip, chunked"`},
		"two lengths":       {server: behaviour{answer: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"}, want: "content-length is both 2 and 3"},
		"chunk size":        {server: behaviour{answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n"}, want: "chunk size is not a hexadecimal number"},
		"bytes behind":      {server: behaviour{answer: plainAnswer + "more"}, want: "bytes after the end of the response"},
		"a banner":          {server: behaviour{answer: "SSH-2.0-OpenSSH_9.2p1 Debian\r\n"}, want: `not an HTTP/1 status line (the first such answer has 30 bytes and begins with "SSH-2.0-OpenSSH_9.2p1 Debian")`},
		"line feeds":        {server: behaviour{answer: "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"}, want: "end with LF alone"},
		"never ends":        {server: behaviour{answer: "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"}, timeout: 50 * time.Millisecond, want: `the answer began and did not end (the first such answer has 41 bytes and begins with "HTTP/1.1 200 OK")`},
		"a header in which": {server: behaviour{answer: "HTTP/1.1 200 OK\r\nContent-"}, timeout: 50 * time.Millisecond, want: "the answer began and did not end (the first such answer has 25 bytes"},
		"no byte":           {server: behaviour{silent: true}, timeout: 50 * time.Millisecond, want: "no byte of the answer came"},
		"statuses":          {server: behaviour{speak: alternating("404 Not Found", "503 Busy")}, want: "404: ", not: "connections were lost"},
		"closed":            {server: closing("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok"), want: `connections were lost before the answer was complete: closed by the service (the first such answer has 41 bytes`},
		"closed at once":    {server: behaviour{speak: func(in *bufio.Reader) (string, error) { _, err := in.ReadString('\n'); return "", err }, closes: true}, want: "before the first byte of the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), Config{URL: newServer(t, c.server).url, Rate: 300, Duration: 200 * time.Millisecond, Connections: 8, Spin: shared, Timeout: c.timeout})
			if err != nil {
				t.Fatal(err)
			}
			void := strings.Join(r.Void, "\n")
			if !strings.Contains(void, c.want) || c.not != "" && strings.Contains(void, c.not) {
				t.Errorf("void %q, want %q", r.Void, c.want)
			}
			if lost := strings.Contains(void, "connections were lost"); lost != c.server.closes {
				t.Errorf("void %q, though the service closes: %v", r.Void, c.server.closes)
			}
			var text strings.Builder
			if err := r.WriteText(&text); err != nil || strings.Count(text.String(), c.want) != 1 {
				t.Errorf("%q stands %d times in (%v)\n%s", c.want, strings.Count(text.String(), c.want), err, text.String())
			}
			if n := r.Errors.Total(); len(r.Causes) == 0 || sumOf(r) != n-r.Errors.Unsent {
				t.Errorf("causes %+v of %d errors", r.Causes, n)
			}
		})
	}
}

func sumOf(r *Result) (n int64) {
	for _, c := range r.Causes {
		n += c.Count
	}
	return n
}

// alternating answers with one status after the other.
func alternating(statuses ...string) func(*bufio.Reader) (string, error) {
	next := make(chan string)
	go func() {
		for i := 0; ; i++ {
			next <- fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", statuses[i%len(statuses)])
		}
	}()
	return func(in *bufio.Reader) (string, error) {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return "", err
			}
			if line == "\r\n" {
				return <-next, nil
			}
		}
	}
}

// TestRequestsThatAreNotSentSayWhatTheConnectionsDo has a server that never answers.
func TestRequestsThatAreNotSentSayWhatTheConnectionsDo(t *testing.T) {
	r, err := Run(t.Context(), Config{URL: newServer(t, behaviour{silent: true}).url, Rate: 300, Duration: 200 * time.Millisecond, Connections: 4, Spin: shared, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if void := strings.Join(r.Void, "\n"); r.Errors.Unsent == 0 || !strings.Contains(void, "requests never got a connection: all 4 connections wait for an answer") {
		t.Errorf("void %q, %+v", r.Void, r.GivenUp)
	}
}

// TestAnswersOfATimeAreNotThoseOfItsRequests has ten requests whose answers come
// after the end. The rate counts the answers of the run, and the text says how many of
// the offered requests have one.
func TestAnswersOfATimeAreNotThoseOfItsRequests(t *testing.T) {
	r := resultOf(t, 1000, func(i int, latency, _ *uint32) {
		if i >= 990 {
			*latency = 50000
		}
	})
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  offered       1000.0 requests/s (1000)\n",
		"  achieved       990.0 requests/s (990 answered; 1000 of the offered requests, some of them later)\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// TestAListOfConnectionOptionsIsRead has servers that announce the close of the
// connection among other tokens, and one that closes although keep-alive stands
// beside the close.
func TestAListOfConnectionOptionsIsRead(t *testing.T) {
	for _, header := range []string{"close, X-Trace", "X-Trace ,CLOSE", "keep-alive, close", "close, keep-alive", "X-Trace\r\nConnection: close", "close\r\nConnection: keep-alive", ",,close"} {
		answer := "HTTP/1.1 200 OK\r\nConnection: " + header + "\r\nContent-Length: 2\r\n\r\nok"
		r, err := Run(t.Context(), Config{URL: newServer(t, behaviour{answer: answer, closes: true}).url, Rate: 300, Duration: 200 * time.Millisecond, Connections: 1, Spin: shared})
		if err != nil {
			t.Fatal(err)
		}
		if r.Errors.Total() != 0 || r.Completed != r.Scheduled || r.Reconnects < r.Completed {
			t.Errorf("%q: %+v, %d reconnects, void %q", header, r.Counts, r.Reconnects, r.Void)
		}
	}
}

// TestTheFirstAddressThatAcceptsIsUsed gives a host two addresses of which one is
// refused, and both.
func TestTheFirstAddressThatAcceptsIsUsed(t *testing.T) {
	s := newServer(t, behaviour{})
	port := s.listener.Addr().(*net.TCPAddr).Port
	at := func(ip string) *net.TCPAddr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	for name, c := range map[string]struct {
		addrs []string
		want  string
	}{
		"IPv6 first": {[]string{"::1", "127.0.0.1"}, "127.0.0.1"},
		"IPv4 first": {[]string{"127.0.0.1", "::1"}, "127.0.0.1"},
		"three":      {[]string{"127.0.0.3", "127.0.0.2", "127.0.0.1"}, "127.0.0.1"},
	} {
		var target protocol.Target
		for _, ip := range c.addrs {
			target.Addrs = append(target.Addrs, at(ip))
		}
		if got, err := selectAddress(t.Context(), target, time.Second); err != nil || got.IP.String() != c.want {
			t.Errorf("%s: %v, %v; want %s", name, got, err, c.want)
		}
	}
	s.close()
	_, err := selectAddress(t.Context(), protocol.Target{Addrs: []*net.TCPAddr{at("::1"), at("127.0.0.1")}}, time.Second)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("[::1]:%d", port)) || !strings.Contains(err.Error(), fmt.Sprintf("127.0.0.1:%d", port)) {
		t.Errorf("error %v, want one that names both addresses", err)
	}
}

// TestARefusedConnectionIsSaidOnce uses several threads and connections.
func TestARefusedConnectionIsSaidOnce(t *testing.T) {
	s := newServer(t, behaviour{})
	s.close()
	_, err := Run(t.Context(), Config{URL: s.url, Rate: 10, Duration: time.Second, Connections: 4})
	if err == nil || strings.Count(err.Error(), "connection refused") != 1 || !strings.Contains(err.Error(), "connection 1 of 4: ") {
		t.Errorf("error %v", err)
	}
}

// inNamespace tells the test binary that it runs with a hosts file of its own.
const inNamespace = "TENON_TEST_TWO_ADDRESSES"

// TestLocalhostWithTwoAddresses resolves localhost with the hosts file of Debian,
// which has both addresses, in a mount namespace of its own. A server listens on one
// of them only.
func TestLocalhostWithTwoAddresses(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		if os.Geteuid() != 0 {
			t.Skip("needs root for a mount namespace")
		}
		hosts := filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", `mount --bind "$1" /etc/hosts && exec "$2" -test.run '^TestLocalhostWithTwoAddresses$'`, "sh", hosts, self)
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, ip := range []string{"127.0.0.1", "::1"} {
		listener, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		if err != nil {
			t.Logf("%s: %v", ip, err)
			continue
		}
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for scheme, b := range map[string]behaviour{"http": {}, "redis": protocols["redis"]} {
			s := newServerOn(t, b, listener)
			url := fmt.Sprintf("%s://localhost:%s", scheme, port)
			if err := protocol.Ready(t.Context(), url); err != nil {
				t.Errorf("%s: %v", url, err)
			}
			r, err := Run(t.Context(), Config{URL: url, Rate: 100, Duration: 100 * time.Millisecond, Connections: 2, Spin: shared})
			if err != nil || r.Completed != r.Scheduled || r.Address != net.JoinHostPort(ip, port) {
				t.Errorf("%s on %s: %+v, %v", url, ip, r, err)
			}
			s.close()
			if err = protocol.Ready(t.Context(), url); err == nil || strings.Count(err.Error(), "connection refused") != 2 {
				t.Errorf("%s without a server: error %v", url, err)
			}
			if listener, err = net.Listen("tcp", net.JoinHostPort(ip, port)); err != nil {
				t.Fatal(err)
			}
		}
		_ = listener.Close()
	}
}
