package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

// ask sends a request to a server and reads the whole answer.
func ask(t *testing.T, url string, patience time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(&http.Transport{})
	defer c.CloseIdleConnections()
	answer, err := Get(c, request, "text/plain")
	if err != nil {
		return "", err
	}
	defer answer.Close()
	text, err := io.ReadAll(answer)
	return string(text), err
}

func plain(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, text)
	}
}

// TestAnAnswerIsReadWhole reads an answer of the greatest length, and one without text.
// The client must not ask for a compressed one.
func TestAnAnswerIsReadWhole(t *testing.T) {
	for _, n := range []int{0, 1, MaxAnswer} {
		want := strings.Repeat("x", n)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "" {
				t.Errorf("the client accepts the encoding %q", got)
			}
			plain(want)(w, r)
		}))
		defer s.Close()
		if got, err := ask(t, s.URL, time.Minute); err != nil || got != want {
			t.Errorf("%d bytes: %d bytes, %v", n, len(got), err)
		}
	}
}

// TestEachFaultOfAServerHasItsReason asks servers that misbehave in one way each.
func TestEachFaultOfAServerHasItsReason(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		plain("stolen")(w, r)
	}))
	defer other.Close()
	header := func(key, value string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(key, value)
			plain("x")(w, r)
		}
	}
	for name, c := range map[string]struct {
		server http.HandlerFunc
		want   node.SourceTrouble
	}{
		"a redirection":      {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, node.TroubleRedirect},
		"another status":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, node.TroubleStatus},
		"no content":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, node.TroubleStatus},
		"another media type": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, node.TroubleContent},
		"compressed":         {header("Content-Encoding", "gzip"), node.TroubleContent},
		"one byte too long":  {plain(strings.Repeat("x", MaxAnswer+1)), node.TroubleTooLarge},
		"a long header":      {header("X-Long", strings.Repeat("x", 2*maxHeader)), node.TroubleConnect},
		"no answer":          {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, node.TroubleSlow},
		"no end": {func(w http.ResponseWriter, r *http.Request) {
			plain("x")(w, r)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, node.TroubleSlow},
		"it hangs up": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}, node.TroubleConnect},
	} {
		s := httptest.NewServer(c.server)
		patience := time.Minute
		if c.want == node.TroubleSlow {
			patience = 100 * time.Millisecond
		}
		if _, err := ask(t, s.URL, patience); err == nil || TroubleOf(err) != c.want {
			t.Errorf("%s: %v, which is %s; want %s", name, err, TroubleOf(err), c.want)
		}
		s.Close()
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("the client followed a redirection %d times", n)
	}
}

// TestAServerThatCannotBeReachedHasItsReason asks a port without a server, and a server
// whose certificate the client does not know.
func TestAServerThatCannotBeReachedHasItsReason(t *testing.T) {
	unknown := httptest.NewTLSServer(plain("x"))
	defer unknown.Close()
	if _, err := ask(t, unknown.URL, time.Minute); TroubleOf(err) != node.TroubleTLS {
		t.Errorf("an unknown certificate: %v, which is %s", err, TroubleOf(err))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, "http://"+address, time.Minute); TroubleOf(err) != node.TroubleConnect {
		t.Errorf("no server: %v, which is %s", err, TroubleOf(err))
	}
}

// TestAFaultKeepsItsReason wraps faults as callers do.
func TestAFaultKeepsItsReason(t *testing.T) {
	err := errors.Join(fmt.Errorf("read the histogram: %w", Fault(node.TroubleDamaged)), errors.New("close the answer"))
	if got := TroubleOf(err); got != node.TroubleDamaged {
		t.Errorf("%v is %s", err, got)
	}
}
