package listen

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// sendBuffer is the size of the kernel's buffer for what a client has not read
// yet, in bytes. The kernel's own limit is some MiB for each connection, which
// count as memory of this process's cgroup.
const sendBuffer = 128 << 10

// doors is a listener with a maximum number of connections (most).
type doors struct {
	net.Listener
	most int
	held atomic.Int64 // bytes of bodies that handlers hold

	mu  sync.Mutex
	all map[*conn]struct{}
}

// A conn is a connection. It waits for its client while no handler runs for it,
// or while a write takes long.
type conn struct {
	net.Conn
	of   *doors
	peer netip.Prefix

	// doors.mu guards these fields. since is the last time at which a handler
	// started while no other ran, or the last one returned. sending is the start
	// of a write that has not returned yet.
	busy    int
	since   time.Time
	sending time.Time
}

// connKey is the key of a *conn in the context of a request.
type connKey struct{}

// withConn adds the *conn of a connection to the context of its requests.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, is := c.(interface{ NetConn() net.Conn }); is {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// Accept returns the next connection that has a place. Connections without a
// place are closed.
func (d *doors) Accept() (net.Conn, error) {
	for {
		inner, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := d.admit(inner); c != nil {
			return c, nil
		}
	}
}

// admit gives a connection a place. It returns nil if there is none.
func (d *doors) admit(inner net.Conn) *conn {
	if s, is := inner.(interface{ SetWriteBuffer(int) error }); is {
		_ = s.SetWriteBuffer(sendBuffer) // without it, a slow client costs more memory
	}
	c := &conn{Conn: inner, of: d, peer: peerOf(inner), since: time.Now()}
	d.mu.Lock()
	var out *conn
	if len(d.all) >= d.most {
		if out = d.makesRoom(c); out == nil {
			d.mu.Unlock()
			drop(inner)
			return nil
		}
		delete(d.all, out)
	}
	d.all[c] = struct{}{}
	d.mu.Unlock()
	if out != nil {
		drop(out.Conn)
	}
	return c
}

// makesRoom returns the connection that leaves for the new one: of those that wait
// for their clients, one of the peer with the most connections. Of these, those
// without a request come first, and then those whose client has not read for
// slowAfter, each the one that has waited longest. If none waits, it returns nil.
// The caller holds d.mu.
func (d *doors) makesRoom(enters *conn) *conn {
	held := map[netip.Prefix]int{enters.peer: 1}
	for c := range d.all {
		held[c.peer]++
	}
	var out *conn
	for c := range d.all {
		if c.busy > 0 && (c.sending.IsZero() || enters.since.Sub(c.sending) <= slowAfter) {
			continue
		}
		if out == nil || cmp.Or(cmp.Compare(held[out.peer], held[c.peer]), cmp.Compare(c.busy, 0)-cmp.Compare(out.busy, 0), c.waits().Compare(out.waits())) < 0 {
			out = c
		}
	}
	return out
}

// waits returns the time since which a connection waits for its client.
func (c *conn) waits() time.Time {
	if c.busy > 0 {
		return c.sending
	}
	return c.since
}

// peerOf returns the addresses that count as one client with that of a connection:
// an address of IPv4 alone, and the 64 bits of a network of IPv6, whose machines
// choose the rest. Every user has all addresses of loopback, so these and Unix
// sockets count as one client.
func peerOf(c net.Conn) netip.Prefix {
	tcp, is := c.RemoteAddr().(*net.TCPAddr)
	if !is || tcp.IP.IsLoopback() {
		return netip.Prefix{}
	}
	at := tcp.AddrPort().Addr().Unmap().WithZone("")
	peer, _ := at.Prefix(min(at.BitLen(), 64)) //nolint:errcheck // an address without bits is the zero Prefix
	return peer
}

// drop closes a connection at once. The kernel does not keep what the client has
// not read.
func drop(c net.Conn) {
	if s, is := c.(interface{ SetLinger(int) error }); is {
		_ = s.SetLinger(0) // without it, the kernel frees the memory later
	}
	_ = c.Close()
}

// begin and end note that a handler starts for the connection, and that it has
// returned.
func (c *conn) begin() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.busy++; c.busy == 1 {
		c.since = time.Now()
	}
}

func (c *conn) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.busy--; c.busy == 0 {
		c.since = time.Now()
	}
}

// pause and resume note that a handler waits for the body of its request, and
// that it does not any more. They leave since alone. Otherwise a client that
// sends one byte at a time would never be the one that waits longest.
func (c *conn) pause() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.busy--
}

func (c *conn) resume() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.busy++
}

func (c *conn) Write(p []byte) (int, error) {
	c.setSending(time.Now())
	defer c.setSending(time.Time{})
	return c.Conn.Write(p)
}

func (c *conn) setSending(since time.Time) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.sending = since
}

// Close closes the connection, and frees its place.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
