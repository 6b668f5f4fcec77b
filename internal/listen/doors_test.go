package listen

import (
	"net"
	"testing"
	"time"
)

// newDoors returns doors without a listener.
func newDoors(most int) *doors { return &doors{most: most, all: map[*conn]struct{}{}} }

// enter admits a connection that has waited for some time.
func enter(t *testing.T, d *doors, waited time.Duration) *conn {
	t.Helper()
	server, client := net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	c := d.admit(server)
	if c == nil {
		t.Fatal("the connection got no place")
	}
	c.since = c.since.Add(-waited)
	return c
}

// A reader is a body that calls a function on each read.
type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }
func (r reader) Close() error               { return nil }

// TestADrippedBodyDoesNotRenewTheWait reads a body one byte at a time, and looks
// before each byte who would make room. It must be the client that drips, because
// its request began before the other connection came.
func TestADrippedBodyDoesNotRenewTheWait(t *testing.T) {
	d := newDoors(2)
	drips, other := enter(t, d, 0), enter(t, d, 30*time.Second)
	drips.begin()
	drips.since = drips.since.Add(-time.Minute)
	looks := 0
	body := &waitingBody{of: drips, ReadCloser: reader(func(p []byte) (int, error) {
		looks++
		if out := d.longestWaiting(time.Now()); out != drips {
			t.Errorf("at byte %d, the client that drips does not make room", looks)
		}
		p[0] = 'x'
		return 1, nil
	})}
	for range 3 {
		if n, err := body.Read(make([]byte, 9)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if out := d.longestWaiting(time.Now()); out != other {
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
	kept, other := enter(t, d, time.Minute), enter(t, d, 30*time.Second)
	kept.begin()
	kept.pause()
	if out := d.longestWaiting(time.Now()); out != other {
		t.Error("the connection with the newer request makes room")
	}
}
