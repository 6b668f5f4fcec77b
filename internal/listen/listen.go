// Package listen serves HTTP to clients that need no trust: it bounds how
// many connections they hold, how long, and how much they send.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Options configure a server.
type Options struct {
	Handler http.Handler
	// Connections is the maximum number of connections at a time. A new
	// connection above it closes one that waits for its client: of the client with
	// the most connections, the one that has waited longest. If all connections
	// are busy, the new one is closed.
	Connections int
	// Patience is the time that a client may take to send a request with its
	// body, or to read an answer. A handler that answers for longer sets a write
	// deadline of its own, and runs for at most this time before it does.
	Patience time.Duration
	// Idle is the time for which a connection may wait for the next request.
	Idle time.Duration
	// Body is the maximum length of a request body in bytes. A body of at most
	// smallBody bytes is read before the handler runs.
	Body int64
	// Name is a further name of this machine that clients on loopback may use in
	// the header Host.
	Name string
	// TLS makes the server speak HTTPS. It may be nil.
	TLS *tls.Config
	Log *slog.Logger
}

const (
	// maxHeader is the maximum length of the header of a request, in bytes.
	maxHeader = 16 << 10
	// smallBody is the maximum length of bodies that are read before the handler
	// runs, in bytes.
	smallBody = 64 << 10
	// slowAfter is the time after which a client counts as slow if it does not
	// read. A new connection may then take its place.
	slowAfter = time.Second
	// maxStreams is the maximum number of requests at a time on one connection of
	// HTTP/2.
	maxStreams = 64
	// maxHeld is the maximum length of the parts of all bodies that handlers have
	// read and not dropped, in bytes.
	maxHeld = 64 << 20
)

// New returns a server, and the listener from which it must take its connections:
// socket with the limits in o.
func New(socket net.Listener, o Options) (*http.Server, net.Listener) {
	doors := &doors{Listener: socket, most: o.Connections, all: map[*conn]struct{}{}}
	level, listener := slog.LevelWarn, net.Listener(doors)
	if o.TLS != nil {
		listener = tls.NewListener(doors, o.TLS)
		level = slog.LevelDebug // each client that fails its handshake makes a line
	}
	return &http.Server{
		Handler: doors.handle(o), MaxHeaderBytes: maxHeader,
		ReadTimeout: o.Patience, WriteTimeout: 2 * o.Patience, IdleTimeout: o.Idle, // a request may be read for the first half
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ConnContext: withConn,
		ErrorLog:    slog.NewLogLogger(o.Log.Handler(), level),
	}, listener
}

// Serve answers the requests at the socket until ctx ends. Then it ends the
// present requests, closes the socket, and returns nil. It returns an error if it
// cannot accept connections any more.
func Serve(ctx context.Context, socket net.Listener, o Options) error {
	server, listener := New(socket, o)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", socket.Addr(), err)
	}
	return nil
}

// handle wraps the handler: it refuses foreign names, bounds the body, and notes
// on the connection whether its request waits for the client.
func (d *doors) handle(o Options) http.Handler {
	names := namesOf(o.Name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := names.check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, o.Body)
		if o.Body <= smallBody {
			if !buffer(w, r) {
				return
			}
			// A handler may run for longer than a client may take to send a
			// request.
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
		c, _ := r.Context().Value(connKey{}).(*conn)
		if c == nil {
			o.Handler.ServeHTTP(w, r)
			return
		}
		c.begin()
		defer c.end()
		body := &waitingBody{ReadCloser: r.Body, of: c}
		defer body.release()
		r.Body = body
		o.Handler.ServeHTTP(w, r)
	})
}
