package lease

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const boot = "0f5c3c1e-6c1b-4a8e-9d59-3f4c8f6f2b11"

var (
	agent     = Holder{PID: 7, Start: 70}
	successor = Holder{PID: 8, Start: 80}
	quota     = Bound{Knob: knob("be", node.FileCPUMax), Inode: 5, Value: node.Limit(500), Reason: "the least"}
	pin       = Bound{Knob: knob("be/odd \xff name", node.FileCPUs), Inode: 6, Value: cpus(""), Reason: "a \"reason\"\nof two lines"}
)

// A manualClock is a clock that advances only when a test says so.
type manualClock struct{ now time.Duration }

func (c *manualClock) read() time.Duration { return c.now }

func take(t testing.TB, dir string, self Holder, clock func() time.Duration) *Lease {
	t.Helper()
	l, err := hold(dir, boot, self, clock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func do(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func written(t testing.TB, dir string) content {
	t.Helper()
	c, err := read(dir, content{})
	do(t, err)
	return c
}

func TestALeaseSaysWhatWasRenewed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run", "tenon")
	clock := &manualClock{now: time.Hour}
	l := take(t, dir, agent, clock.read)
	bounds := []Bound{quota, pin}
	do(t, l.Renew(bounds))
	got := written(t, dir)
	if want := (head{boot: boot, holder: agent, deadline: time.Hour + TTL, body: got.head.body}); got.head != want {
		t.Errorf("got %+v, want %+v", got.head, want)
	}
	if !slices.Equal(got.bounds, bounds) {
		t.Errorf("got %v, want %v", got.bounds, bounds)
	}
	clock.now += time.Second
	do(t, l.Announce(time.Minute))
	if got := written(t, dir); !got.head.announced || got.head.deadline != clock.now+time.Minute || len(got.bounds) != 2 {
		t.Errorf("announced: %+v", got)
	}
}

func TestARenewalWithTheSameBoundsWritesOneLineInPlace(t *testing.T) {
	dir := t.TempDir()
	clock := &manualClock{}
	l := take(t, dir, agent, clock.read)
	stat := func() fs.FileInfo {
		info, err := os.Stat(filepath.Join(dir, leaseFile))
		do(t, err)
		return info
	}
	do(t, l.Renew([]Bound{quota}))
	before := stat()
	clock.now += time.Second
	do(t, l.Renew([]Bound{quota}))
	if !os.SameFile(before, stat()) || written(t, dir).head.deadline != clock.now+TTL {
		t.Error("the file was replaced, or not renewed")
	}
	do(t, l.Renew(nil))
	if os.SameFile(before, stat()) || len(written(t, dir).bounds) != 0 {
		t.Error("other bounds were written over the old ones")
	}
}

func TestASecondHolderIsToldWhoTheFirstIs(t *testing.T) {
	dir := t.TempDir()
	clock := &manualClock{}
	l := take(t, dir, agent, clock.read)
	clock.now += time.Hour // a holder that is stopped still holds the lease
	_, err := hold(dir, boot, successor, clock.read)
	if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("got %v", err)
	}
	if pid, held := IsHeld(dir); !held || pid != os.Getpid() {
		t.Errorf("held by %d, %v", pid, held)
	}
	do(t, l.Close())
	if pid, held := IsHeld(dir); held {
		t.Errorf("still held by %d", pid)
	}
	take(t, dir, successor, clock.read)
}

func TestANewHolderKeepsWhatTheOldOneLeft(t *testing.T) {
	dir := t.TempDir()
	clock := &manualClock{now: time.Hour}
	l := take(t, dir, agent, clock.read)
	do(t, l.Renew([]Bound{quota}), l.Announce(time.Minute), l.Close())
	old := written(t, dir)
	clock.now += 10 * time.Second
	next := take(t, dir, successor, clock.read)
	got := written(t, dir)
	if old.head.holder = successor; got.head != old.head || !slices.Equal(got.bounds, old.bounds) {
		t.Errorf("got %+v, want %+v", got, old)
	}
	if next.HasExpired() {
		t.Error("an announced lease has expired early")
	}
	clock.now += time.Minute
	if !next.HasExpired() {
		t.Error("a lease that was never renewed does not expire")
	}
}

func TestWhatIsNoLeaseOfThisBootIsVoid(t *testing.T) {
	foreign, err := encode([]Bound{quota})
	do(t, err)
	h := head{boot: "another-boot", holder: successor, deadline: time.Hour, body: sumOf(foreign)}
	for name, text := range map[string]string{
		"of another boot": string(h.append(nil)) + string(foreign),
		"empty":           "",
		"garbage":         "garbage\n",
		"torn head":       string(h.append(nil)[:40]),
		"torn body":       string(h.append(nil)) + string(foreign[:10]),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			do(t, os.WriteFile(filepath.Join(dir, leaseFile), []byte(text), 0o644))
			clock := &manualClock{now: time.Second}
			take(t, dir, agent, clock.read)
			got := written(t, dir)
			if want := (head{boot: boot, holder: agent, deadline: clock.now + TTL}); got.head != want || len(got.bounds) != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestALeaseThatWasTakenAwayIsNotRenewed(t *testing.T) {
	dir := t.TempDir()
	clock := &manualClock{}
	l := take(t, dir, agent, clock.read)
	do(t, l.Renew([]Bound{quota}), Disarm(t.Context(), dir))
	for _, bounds := range [][]Bound{{quota}, nil} {
		if err := l.Renew(bounds); !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
	}
	if err := l.Announce(time.Second); !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, leaseFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lease is back: %v", err)
	}
	do(t, l.Drop())
}

// TestALockThatWasRemovedAloneIsMadeAgain removes only the lock file. The
// holder must create it again. Otherwise a second holder could create a lock
// file and lock it.
func TestALockThatWasRemovedAloneIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	l := take(t, dir, agent, monotonic)
	do(t, os.Remove(filepath.Join(dir, leaseLock)))
	do(t, l.Renew(nil))
	if _, err := hold(dir, boot, Holder{PID: 2}, monotonic); !errors.Is(err, ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
}

// TestALeaseThatCannotBeMadeAgainIsNotTakenAway removes the directory of a lease
// whose file cannot be written then. No other process has the lease, so the holder
// must try again, and must have it when the file can be written.
func TestALeaseThatCannotBeMadeAgainIsNotTakenAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	l := take(t, dir, agent, monotonic)
	next := filepath.Join(dir, leaseFile+".next")
	do(t, l.Renew([]Bound{quota}), os.RemoveAll(dir), os.Mkdir(dir, 0o700), os.MkdirAll(filepath.Join(next, "x"), 0o700))
	for range 3 {
		if err := l.Renew([]Bound{quota}); err == nil || errors.Is(err, ErrLost) {
			t.Fatalf("got %v", err)
		}
	}
	do(t, os.RemoveAll(next), l.Renew([]Bound{quota}))
	if got := written(t, dir); got.head.holder != agent || len(got.bounds) != 1 {
		t.Errorf("got %+v", got)
	}
	if _, err := hold(dir, boot, successor, monotonic); !errors.Is(err, ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
}

func TestADroppedLeaseIsGone(t *testing.T) {
	dir := t.TempDir()
	l := take(t, dir, agent, monotonic)
	do(t, l.Drop())
	if _, err := read(dir, content{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := l.Renew(nil); err == nil {
		t.Error("a dropped lease was renewed")
	}
	do(t, Disarm(t.Context(), dir), Disarm(t.Context(), filepath.Join(dir, "never", "was")))
}

// TestBoundsThatCannotBeWrittenDoNotEndTheLease puts a directory at the path of
// the new file, so that the file cannot be written. The tests of package e2e fill a
// real tmpfs.
func TestBoundsThatCannotBeWrittenDoNotEndTheLease(t *testing.T) {
	dir := t.TempDir()
	clock := &manualClock{}
	l := take(t, dir, agent, clock.read)
	do(t, l.Renew([]Bound{quota}), os.MkdirAll(filepath.Join(dir, leaseFile+".next", "x"), 0o755))
	clock.now += time.Second
	if err := l.Renew([]Bound{quota, pin}); !errors.Is(err, ErrOldBounds) {
		t.Errorf("got %v", err)
	}
	if got := written(t, dir); got.head.deadline != clock.now+TTL || !slices.Equal(got.bounds, []Bound{quota}) {
		t.Errorf("got %+v", got)
	}
	if err := l.Renew([]Bound{{Knob: quota.Knob}}); err == nil || !strings.Contains(err.Error(), quota.Knob.String()) {
		t.Errorf("a bound without a value: %v", err)
	}
}

// TestALeaseThatCannotBeReplacedIsTakenOver restarts the holder on a full file
// system. The next holder needs no space until the bounds change.
func TestALeaseThatCannotBeReplacedIsTakenOver(t *testing.T) {
	dir, next := t.TempDir(), filepath.Join("lease.next", "x")
	clock := &manualClock{now: time.Hour}
	l := take(t, dir, agent, clock.read)
	do(t, l.Renew([]Bound{quota, pin}), l.Close(), os.MkdirAll(filepath.Join(dir, next), 0o755))
	old := written(t, dir)
	clock.now += time.Second
	l = take(t, dir, successor, clock.read)
	old.head.holder = successor
	if got := written(t, dir); got.head != old.head || !slices.Equal(got.bounds, old.bounds) {
		t.Errorf("got %+v, want %+v", got, old)
	}
	do(t, l.Renew([]Bound{quota, pin}))
	if got := written(t, dir); got.head.deadline != clock.now+TTL || len(got.bounds) != 2 {
		t.Errorf("renewed: %+v", got)
	}
	if err := l.Renew(nil); !errors.Is(err, ErrOldBounds) {
		t.Errorf("other bounds: %v", err)
	}
	do(t, os.RemoveAll(filepath.Join(dir, "lease.next")), l.Renew(nil))
	if got := written(t, dir); len(got.bounds) != 0 {
		t.Errorf("with space again: %+v", got)
	}
	// A lease of another boot has bounds of another boot, and cannot be taken over.
	do(t, l.Close(), os.MkdirAll(filepath.Join(dir, next), 0o755))
	if _, err := hold(dir, "another-boot", agent, clock.read); err == nil {
		t.Error("a lease of another boot was taken over")
	}
}

func TestBadArgumentsAreNamed(t *testing.T) {
	for _, id := range []string{"", "two words", strings.Repeat("x", 40)} {
		if _, err := Hold(t.TempDir(), id, agent); err == nil || !strings.Contains(err.Error(), "boot id") {
			t.Errorf("boot id %q: %v", id, err)
		}
	}
	l := take(t, t.TempDir(), agent, monotonic)
	for _, d := range []time.Duration{-1, MaxAnnounce + 1} {
		if err := l.Announce(d); err == nil {
			t.Errorf("announced %v", d)
		}
	}
}

func TestEveryTornHeadIsNoticed(t *testing.T) {
	one := head{boot: boot, holder: agent, deadline: 111111, body: sum{100, 7}}
	two := head{boot: boot, holder: agent, deadline: 222222, announced: true, body: sum{100, 7}}
	a, b := one.append(nil), two.append(nil)
	if len(a) != headSize || len(b) != headSize {
		t.Fatalf("heads of %d and %d bytes, want %d", len(a), len(b), headSize)
	}
	for cut := range headSize + 1 {
		mixed := slices.Concat(a[:cut], b[cut:])
		if h, err := parseHead(mixed); err == nil && h != one && h != two {
			t.Errorf("cut at %d: %q is read as %+v", cut, mixed, h)
		}
	}
}

func FuzzAnyLeaseIsReadable(f *testing.F) {
	body, err := encode([]Bound{quota, pin})
	if err != nil {
		f.Fatal(err)
	}
	whole := append(head{boot: boot, holder: agent, deadline: time.Hour, body: sumOf(body)}.append(nil), body...)
	f.Add(whole)
	f.Add(whole[:headSize+5])
	f.Add(head{boot: "x", announced: true}.append(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := readFrom(bytes.NewReader(text), content{})
		if err != nil {
			return
		}
		if line := c.head.append(nil); !bytes.HasPrefix(text, line) {
			t.Errorf("%q was read, which writes as %q", text, line)
		}
		if h, err := parseHead(c.head.append(nil)); err != nil || h != c.head {
			t.Errorf("%+v reads back as %+v, %v", c.head, h, err)
		}
	})
}

// FuzzAnyBodyIsReadable reads leases with any body and a correct check sum.
func FuzzAnyBodyIsReadable(f *testing.F) {
	body, err := encode([]Bound{quota, pin})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		bounds, err := parseBody(text, sumOf(text))
		if err != nil {
			return
		}
		again, err := encode(bounds)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseBody(again, sumOf(again)); err != nil || !slices.Equal(back, bounds) {
			t.Errorf("%v reads back as %v, %v", bounds, back, err)
		}
	})
}

func BenchmarkRenew(b *testing.B) {
	dir := b.TempDir()
	if shm, err := os.MkdirTemp("/dev/shm", "tenon-lease-"); err == nil { // tmpfs, as in production
		b.Cleanup(func() { _ = os.RemoveAll(shm) })
		dir = shm
	}
	bounds := make([]Bound, 100)
	for i := range bounds {
		bounds[i] = Bound{Knob: knob(node.CgroupPath(fmt.Sprintf("be/%d", i)), node.FileCPUMax), Inode: uint64(i), Value: node.Limit(500)}
	}
	other := append(slices.Clone(bounds), quota)
	l := take(b, dir, agent, monotonic)
	b.Run("same", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			do(b, l.Renew(bounds))
		}
	})
	b.Run("other", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			do(b, l.Renew([][]Bound{bounds, other}[i%2]))
		}
	})
	b.Run("look", func(b *testing.B) {
		b.ReportAllocs()
		last := written(b, dir)
		for b.Loop() {
			_, err := read(dir, last)
			do(b, err)
		}
	})
}
