package host

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// newCookieBench returns a bench whose kernel has core scheduling.
func newCookieBench(t *testing.T) (*bench, *modelCore) {
	t.Helper()
	core := &modelCore{cookies: map[int]uint64{}}
	b := newCoreBench(t, true, core)
	b.can = func() node.Capabilities { return node.Capabilities{node.FeatureCoreSched: available("model")} }
	return b, core
}

// countForeign takes a snapshot after the time d. It returns how many
// processes with cookies of other components the snapshot shows.
func (b *bench) countForeign(t *testing.T, d time.Duration) int {
	t.Helper()
	s := b.snapshot(t)
	s.At = s.At.Add(d)
	touches, err := b.changes.ReleasableKnobs()
	do(t, err)
	b.isolation.Fill(&s, touches)
	return s.Isolation.Cookies
}

// TestCookiesOfOthersAreSeenWhereverTheyAre sets a cookie on a process that
// Tenon does not manage. The snapshot must count this process, because core
// scheduling affects the whole machine.
func TestCookiesOfOthersAreSeenWhereverTheyAre(t *testing.T) {
	b, core := newCookieBench(t)
	nobody, be := b.thread(t, "be/b", task.Normal), b.thread(t, "be/a", task.Normal)
	b.procOf(t, map[int]string{nobody: "elsewhere", be: "be/a"})
	if n := b.snapshot(t).Isolation.Cookies; n != 0 {
		t.Fatalf("%d cookies without a process", n)
	}
	core.cookies[nobody], core.cookies[be] = 5, 6
	if n := b.snapshot(t).Isolation.Cookies; n != 0 {
		t.Error("all processes are looked at in each turn")
	}
	if n := b.countForeign(t, reread.Unchanged); n != 2 {
		t.Errorf("%d cookies of others, want 2: one on best-effort work, one on what no rule knows", n)
	}
	delete(core.cookies, nobody)
	b.group(t, "new")
	b.Manage(node.Workload{ID: "new", Class: node.LS, Cgroup: "new", ContentionRoot: "new"})
	if n := b.snapshot(t).Isolation.Cookies; n != 1 {
		t.Errorf("%d cookies with new work, want 1", n)
	}
}

func TestCookiesOfAnEarlierAgentAreNotOthers(t *testing.T) {
	b, core := newCookieBench(t)
	old := b.thread(t, "be/a", task.Normal)
	b.procOf(t, map[int]string{old: "be/a"})
	b.snapshot(t)
	do(t, b.set(t, cookieOf("be"), node.ThreadsBE))
	core.cookies[old] = 3
	can := b.can
	b.open(t, true) // like the next process, which has not issued any cookie yet
	b.can = can
	if n := b.countForeign(t, reread.Unchanged); n != 0 {
		t.Errorf("%d cookies of others, want 0", n)
	}
}

// TestCookieOfAnotherIsLeftToItsOwner checks that Tenon does not change the
// cookie of another component, even on best-effort work. A container runtime
// may use cookies to keep its containers apart.
func TestCookieOfAnotherIsLeftToItsOwner(t *testing.T) {
	b, core := newCookieBench(t)
	ours, theirs := b.thread(t, "be/a", task.Normal), b.thread(t, "be/b", task.Normal)
	b.procOf(t, map[int]string{ours: "be/a", theirs: "be/b"})
	core.cookies[theirs] = 9
	b.snapshot(t)
	do(t, b.set(t, cookieOf("be"), node.ThreadsBE))
	if core.cookies[ours] != 77 || core.cookies[theirs] != 9 {
		t.Errorf("cookies %d and %d, want ours and theirs", core.cookies[ours], core.cookies[theirs])
	}
	b.isolation.Expire()
	if got := b.snapshot(t).Knobs.Now[cookieOf("be")]; got != node.ThreadsBE {
		t.Errorf("shown as %v: it would be written in every turn", got)
	}
	do(t, b.release(t, cookieOf("be")))
	if core.cookies[ours] != 0 || core.cookies[theirs] != 9 {
		t.Errorf("after the release %d and %d, want none and theirs", core.cookies[ours], core.cookies[theirs])
	}
}
