package endpoint

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHeldConnectionsKeepNoReviewOut holds more connections to the webhooks than
// they take: some without a handshake, some with half a request, and some that
// have been answered. A review must get its answer beside them.
func TestHeldConnectionsKeepNoReviewOut(t *testing.T) {
	lent := httptest.NewTLSServer(nil) // for its certificate
	defer lent.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	s := NewWebhooks("127.0.0.1", port, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &lent.TLS.Certificates[0], nil }, slog.New(slog.DiscardHandler))
	s.Register("/review", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Start(ctx) }()
	for s.StartedChecker()(httptest.NewRequest(http.MethodGet, "/readyz", nil)) != nil {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
	}
	asks := func(client *http.Client) string {
		t.Helper()
		answer, err := client.Post("https://"+s.address+"/review", "application/json", bytes.NewReader(make([]byte, 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(answer.Proto, " ", string(text))
	}
	trust := &tls.Config{InsecureSkipVerify: true}
	var held []net.Conn
	for i := range 2 * maxConnections {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		if i%3 == 1 {
			c = tls.Client(c, trust)
			if _, err := io.WriteString(c, "POST /review HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\nhalf"); err != nil {
				t.Fatal(err)
			}
		}
		if i%16 != 0 {
			continue
		}
		kept := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}}
		if got := asks(kept); got != "HTTP/2.0 1048576 <nil>" {
			t.Fatalf("beside %d connections: %q", i, got)
		}
	}
	for _, c := range held {
		c.Close() // the end of the server waits for new connections
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
