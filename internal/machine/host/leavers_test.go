package host

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/machine/isolation"
	"tenon.sh/tenon/internal/machine/reread"
	"tenon.sh/tenon/internal/model/node"
)

// A modelCore is a model of core scheduling in memory. It has the cookies of
// threads.
type modelCore struct {
	mu      sync.Mutex
	cookies map[int]uint64
	keeps   error // the error that clear returns
	lasts   int   // number of closed cookies
}

func (m *modelCore) NewCookie(...int) (isolation.Cookie, error) { return modelCookie{m}, nil }

func (m *modelCore) CookieOf(tid int) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cookies[tid], nil
}

func (m *modelCore) give(list task.List, id uint64) (n int, err error) {
	tids, err := list()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tid := range tids {
		if m.cookies[tid] != id {
			m.cookies[tid] = id
			n++
		}
	}
	return n, err
}

func (m *modelCore) Clear(list task.List) (int, error) {
	if m.keeps != nil {
		return 0, m.keeps
	}
	return m.give(list, 0)
}

type modelCookie struct{ of *modelCore }

func (modelCookie) ID() uint64 { return 77 }

func (c modelCookie) Share(list task.List, spare func(int) bool) (int, error) {
	return c.of.give(func() ([]int, error) {
		tids, err := list()
		return slices.DeleteFunc(tids, func(tid int) bool { return spare != nil && spare(tid) }), err
	}, 77)
}

func (c modelCookie) Close() { c.of.lasts++ }

func cookieOf(p node.CgroupPath) node.Knob { return node.Knob{Cgroup: p, File: node.FileCookie} }

// TestReleaseThatFailsIsTriedAgain makes a release fail. Tenon must try it
// again. Otherwise the threads would keep the attribute while the next
// mechanism is in use.
func TestReleaseThatFailsIsTriedAgain(t *testing.T) {
	tests := map[string]struct {
		knob node.Knob
		fail func(*modelExt, *modelCore, error)
	}{
		"policy": {policyOf("be"), func(e *modelExt, _ *modelCore, err error) { e.keeps = err }},
		"cookie": {cookieOf("be"), func(_ *modelExt, c *modelCore, err error) { c.keeps = err }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			core := &modelCore{cookies: map[int]uint64{}}
			b := newCoreBench(t, true, core)
			tid := b.thread(t, "be/a", task.Normal)
			b.snapshot(t)
			do(t, b.set(t, tc.knob, node.ThreadsBE))
			tc.fail(b.ext, core, errBoom)
			if err := b.release(t, tc.knob); !errors.Is(err, errBoom) {
				t.Fatalf("got %v, want the failure", err)
			}
			b.isolation.Expire()
			s := b.snapshot(t)
			if s.Knobs.Now[tc.knob] != node.ThreadsBE || s.Knobs.Before[tc.knob] != node.ThreadsNormal {
				t.Errorf("shown as %v, before %v: the release would not be tried again", s.Knobs.Now[tc.knob], s.Knobs.Before[tc.knob])
			}
			if core.lasts != 0 {
				t.Error("the cookie was let go of while threads have it")
			}
			tc.fail(b.ext, core, nil)
			do(t, b.release(t, tc.knob))
			if id, _ := core.CookieOf(tid); b.ext.policy(tid) != task.Normal || id != 0 || !b.journaled(t).Empty() {
				t.Errorf("after the second try: policy %v, cookie %d, journaled %v", b.ext.policy(tid), id, b.journaled(t))
			}
			if _, shown := b.snapshot(t).Knobs.Now[tc.knob]; shown {
				t.Error("it is still shown")
			}
		})
	}
}

// TestAThreadThatLeftItsGroupLosesTheAttribute moves a thread out of a
// best-effort cgroup into one that Tenon does not manage. The release must
// remove the attribute of this thread, too.
func TestAThreadThatLeftItsGroupLosesTheAttribute(t *testing.T) {
	scene := func(t *testing.T) (*bench, *modelCore, int, int) {
		core := &modelCore{cookies: map[int]uint64{}}
		b := newCoreBench(t, true, core)
		left := b.thread(t, "be/a", task.Normal)
		b.snapshot(t)
		do(t, b.set(t, policyOf("be"), node.ThreadsBE), b.set(t, policyOf("be/b"), node.ThreadsBE), b.set(t, cookieOf("be"), node.ThreadsBE))
		b.thread(t, "be/a", task.Ext) // this thread still has the cookie
		core.cookies[b.next] = 77
		other := b.next + 100 // a thread in no managed cgroup, with another component's cookie
		core.cookies[other] = 5
		b.procOf(t, map[int]string{left: "elsewhere", other: "elsewhere"})
		for _, tid := range []int{left, other} {
			b.put(t, filepath.Join(b.fs.Proc, strconv.Itoa(tid), "task", strconv.Itoa(tid), "comm"), "left\n")
		}
		b.put(t, filepath.Join(b.root, "be/a/cgroup.threads"), strconv.Itoa(b.next)+"\n")
		return b, core, left, other
	}
	t.Run("with the last release", func(t *testing.T) {
		b, core, left, other := scene(t)
		do(t, b.release(t, policyOf("be")))
		if b.ext.policy(left) != task.Ext {
			t.Error("all threads were looked at although a knob is left")
		}
		do(t, b.release(t, policyOf("be/b")), b.release(t, cookieOf("be")))
		if b.ext.policy(left) != task.Normal || core.cookies[left] != 0 || core.cookies[other] != 5 {
			t.Errorf("policy %v, cookie %d, and a stranger's is %d", b.ext.policy(left), core.cookies[left], core.cookies[other])
		}
	})
	t.Run("who is seen later", func(t *testing.T) {
		b, core, left, other := scene(t)
		do(t, b.release(t, policyOf("be")), b.release(t, policyOf("be/b")), b.release(t, cookieOf("be")))
		b.ext.set(left, task.Ext) // a thread that was just created has a copy of the attributes of its parent
		core.cookies[left] = 77
		b.guard(t, reread.Unchanged/2)
		if b.ext.policy(left) != task.Ext {
			t.Error("all threads are looked at in each turn")
		}
		b.guard(t, reread.Unchanged)
		if b.ext.policy(left) != task.Normal || core.cookies[left] != 0 || core.cookies[other] != 5 {
			t.Errorf("policy %v, cookie %d, and a stranger's is %d", b.ext.policy(left), core.cookies[left], core.cookies[other])
		}
		b.ext.set(left, task.Ext) // now the thread chose the policy itself
		b.guard(t, reread.Unchanged)
		if b.ext.policy(left) != task.Ext {
			t.Error("no thread stays exempt for good")
		}
	})
	t.Run("with a restore", func(t *testing.T) {
		b, core, left, other := scene(t)
		b.open(t, true) // like another process
		_, err := b.Restore(t.Context())
		do(t, err)
		if b.ext.policy(left) != task.Normal || core.cookies[left] != 0 || core.cookies[other] != 5 {
			t.Errorf("policy %v, cookie %d, and a stranger's is %d", b.ext.policy(left), core.cookies[left], core.cookies[other])
		}
	})
	t.Run("not while another's scheduler is loaded", func(t *testing.T) {
		b, _, left, _ := scene(t)
		b.put(t, filepath.Join(b.fs.Sys, "kernel/sched_ext/state"), "enabled\n")
		b.put(t, filepath.Join(b.fs.Sys, "kernel/sched_ext/root/ops"), "theirs\n")
		do(t, b.release(t, policyOf("be")), b.release(t, policyOf("be/b")))
		if b.ext.policy(left) != task.Ext {
			t.Error("what may be theirs was taken")
		}
	})
}
