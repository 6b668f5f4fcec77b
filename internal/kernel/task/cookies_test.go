package task

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// needsCookies skips the test if the kernel has no CONFIG_SCHED_CORE or the
// machine has no SMT.
func needsCookies(t *testing.T) {
	t.Helper()
	if _, err := CoreCookie(0); errors.Is(err, ErrUnsupported) {
		t.Skipf("no core scheduling here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

func cookies(t *testing.T, from ...int) *Cookies {
	t.Helper()
	c, err := NewCookies(from...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func cookieOf(t *testing.T, tid int) uint64 {
	t.Helper()
	id, err := CoreCookie(tid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestCookieIsSharedAndCleared(t *testing.T) {
	needsCookies(t)
	c := cookies(t)
	one, two, spared := sleeper(t), sleeper(t), sleeper(t)
	list := Fixed(one, two, spared)
	if n, err := c.Share(list, func(tid int) bool { return tid == spared }); n != 2 || err != nil {
		t.Fatalf("shared with %d, %v, want 2", n, err)
	}
	if c.ID() == 0 || cookieOf(t, one) != c.ID() || cookieOf(t, two) != c.ID() || cookieOf(t, spared) != 0 {
		t.Errorf("cookies %d and %d, cookie %d of the exempt thread; want twice %d and 0", cookieOf(t, one), cookieOf(t, two), cookieOf(t, spared), c.ID())
	}
	if id := cookieOf(t, 0); id != 0 {
		t.Errorf("a thread of this process that does not hold the cookie has cookie %d", id)
	}
	if n, err := ClearCookies(list); n != 2 || err != nil {
		t.Errorf("cleared %d, %v, want 2", n, err)
	}
	if cookieOf(t, one) != 0 || cookieOf(t, two) != 0 {
		t.Errorf("cookies %d %d after they were cleared", cookieOf(t, one), cookieOf(t, two))
	}
}

// TestCookieOutlivesItsBearer checks that a cookie stays in use after a restart
// of the agent: NewCookies adopts the cookie of a listed thread.
func TestCookieOutlivesItsBearer(t *testing.T) {
	needsCookies(t)
	first := cookies(t)
	tid := sleeper(t)
	if _, err := first.Share(Fixed(tid), nil); err != nil {
		t.Fatal(err)
	}
	other := cookies(t)
	if other.ID() == first.ID() {
		t.Errorf("two cookies are both %d", other.ID())
	}
	if next := cookies(t, sleeper(t), tid); next.ID() != first.ID() {
		t.Errorf("adopted cookie %d, want %d", next.ID(), first.ID())
	}
}

func TestCookieOfAForkStormIsOne(t *testing.T) {
	needsCookies(t)
	c := cookies(t)
	list := storm(t)
	for round := range 2 {
		time.Sleep(20 * time.Millisecond)
		if _, err := c.Share(list, nil); err != nil {
			t.Fatal(err)
		}
		tids, _ := list()
		for _, tid := range tids {
			if id, err := CoreCookie(tid); err == nil && id != c.ID() {
				t.Errorf("round %d: thread %d has cookie %d, want %d", round, tid, id, c.ID())
			}
		}
		if _, err := ClearCookies(list); err != nil {
			t.Fatal(err)
		}
		tids, _ = list()
		for _, tid := range tids {
			if id, err := CoreCookie(tid); err == nil && id != 0 {
				t.Errorf("round %d: thread %d still has cookie %d", round, tid, id)
			}
		}
	}
}

func TestWithoutCoreSchedulingCookiesAreUnsupported(t *testing.T) {
	if _, err := CoreCookie(0); !errors.Is(err, ErrUnsupported) {
		t.Log("this machine has core scheduling; the other tests cover it")
		return
	}
	if c, err := NewCookies(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("made %v, %v, want ErrUnsupported", c, err)
	}
	if _, err := ClearCookies(Fixed(sleeper(t))); !errors.Is(err, ErrUnsupported) {
		t.Errorf("cleared: %v, want ErrUnsupported", err)
	}
}

func TestOSThreadIsNeverTheFirst(t *testing.T) {
	// With 20 threads, the first thread of the process is certainly among them.
	var all []*osThread
	for range 20 {
		all = append(all, newOSThread())
	}
	for _, th := range all {
		_ = th.do(func() error {
			if unix.Gettid() == os.Getpid() {
				t.Errorf("the osThread is the first thread of the process, %d", os.Getpid())
			}
			return nil
		})
		th.end()
	}
}
