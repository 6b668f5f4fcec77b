package listen

import (
	"net"
	"testing"
	"time"
)

// newDoors returns doors without a listener.
func newDoors(most int) *doors { return &doors{most: most, all: map[*conn]struct{}{}} }

// A from is a connection from an address.
type from struct {
	net.Conn
	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 9} }

// enter admits a connection from an address. It has waited for some time.
func enter(t *testing.T, d *doors, ip string, waited time.Duration) *conn {
	t.Helper()
	server, client := net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	c := d.admit(from{server, ip})
	if c == nil {
		t.Fatal("the connection got no place")
	}
	c.since = c.since.Add(-waited)
	return c
}

// leaves returns the connection that would make room for a new one over loopback.
func leaves(d *doors) *conn { return d.makesRoom(&conn{since: time.Now()}) }

// A reader is a body that calls a function on each read.
type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }
func (r reader) Close() error               { return nil }

// TestADrippedBodyDoesNotRenewTheWait reads a body one byte at a time, and looks
// before each byte who would make room. It must be the client that drips, because
// its request began before the other connection came.
func TestADrippedBodyDoesNotRenewTheWait(t *testing.T) {
	d := newDoors(2)
	drips, other := enter(t, d, "127.0.0.1", 0), enter(t, d, "127.0.0.1", 30*time.Second)
	drips.begin()
	drips.since = drips.since.Add(-time.Minute)
	looks := 0
	body := &waitingBody{of: drips, ReadCloser: reader(func(p []byte) (int, error) {
		looks++
		if out := leaves(d); out != drips {
			t.Errorf("at byte %d, the client that drips does not make room", looks)
		}
		p[0] = 'x'
		return 1, nil
	})}
	for range 3 {
		if n, err := body.Read(make([]byte, 9)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if out := leaves(d); out != other {
			t.Error("a connection whose handler runs makes room")
		}
	}
	if looks != 3 {
		t.Errorf("%d reads, want 3", looks)
	}
}

// TestANewRequestRenewsTheWait starts a request on a connection that has waited
// longest. While its body comes, a connection that has waited since before the
// request makes room.
func TestANewRequestRenewsTheWait(t *testing.T) {
	d := newDoors(2)
	kept, other := enter(t, d, "127.0.0.1", time.Minute), enter(t, d, "127.0.0.1", 30*time.Second)
	kept.begin()
	kept.pause()
	if out := leaves(d); out != other {
		t.Error("the connection with the newer request makes room")
	}
}

// TestThePeerWithMostConnectionsMakesRoom lets one client open and use many
// connections while another one has a single one, which has waited longest.
func TestThePeerWithMostConnectionsMakesRoom(t *testing.T) {
	for name, c := range map[string]struct {
		single string
		many   []string
		stays  bool
	}{
		"another address":         {"192.0.2.7", []string{"192.0.2.8"}, true},
		"another network of IPv6": {"2001:db8:0:1::7", []string{"2001:db8:0:2::7", "2001:db8:0:2::8", "2001:db8:0:2:ffff::"}, true},
		"loopback beside others":  {"127.0.0.1", []string{"192.0.2.8"}, true},
		"others beside loopback":  {"192.0.2.8", []string{"127.0.0.1", "127.0.0.2", "::1", "127.255.0.1"}, true},
		"the same address":        {"192.0.2.7", []string{"192.0.2.7"}, false},
		"IPv4 in IPv6":            {"192.0.2.7", []string{"::ffff:192.0.2.7"}, false},
		"loopback alone":          {"127.0.0.1", []string{"127.0.0.2", "::1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDoors(8)
			single := enter(t, d, c.single, time.Hour)
			for i := range 40 {
				used := enter(t, d, c.many[i%len(c.many)], 0)
				used.begin()
				used.end()
			}
			if _, stays := d.all[single]; stays != c.stays || len(d.all) != d.most {
				t.Errorf("the single connection stays: %v, want %v; %d connections, want %d", stays, c.stays, len(d.all), d.most)
			}
		})
	}
}

// TestIdleConnectionsLeaveBeforeSlowOnes checks the order within a peer, and that a
// slow reader of the peer with the most connections leaves before an idle one of
// another peer.
func TestIdleConnectionsLeaveBeforeSlowOnes(t *testing.T) {
	d := newDoors(9)
	single := enter(t, d, "192.0.2.7", time.Hour)
	slow, slower := enter(t, d, "192.0.2.8", 0), enter(t, d, "192.0.2.8", 0)
	newer, idle := enter(t, d, "192.0.2.8", 0), enter(t, d, "192.0.2.8", time.Second)
	busy := enter(t, d, "192.0.2.8", time.Hour)
	for _, c := range []*conn{slow, slower, busy} {
		c.begin()
	}
	slow.setSending(time.Now().Add(-2 * slowAfter))
	slower.setSending(time.Now().Add(-3 * slowAfter))
	for i, want := range []*conn{idle, newer, slower, slow, single, nil} {
		if got := leaves(d); got != want {
			t.Fatalf("leaver %d is another one than expected", i)
		}
		delete(d.all, want)
	}
}
