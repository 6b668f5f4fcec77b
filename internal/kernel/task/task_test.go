package task

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// sleeper starts a process with one thread, whose attributes a test may change.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot start sleep: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func mustAttr(t *testing.T, tid int) SchedAttr {
	t.Helper()
	a, err := Attr(tid)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// nicer returns a copy of the attributes of a thread with another nice value:
// at most seven more, because a test that itself is nice may not make its
// children less nice. At nice 19 there is no other value, so the copy is equal.
func nicer(a SchedAttr) SchedAttr {
	a.Nice = min(a.Nice+7, 19)
	return a
}

func TestIdleKeepsNiceForTheWayBack(t *testing.T) {
	tid := sleeper(t)
	a := nicer(mustAttr(t, tid))
	if a.Slice != 0 { // Linux 6.12
		a.Slice = 9 * time.Millisecond
	}
	if err := SetAttr(tid, a); err != nil {
		t.Fatal(err)
	}
	if err := SetIdle(tid); err != nil {
		t.Fatal(err)
	}
	if got := mustAttr(t, tid); got.Policy != Idle || got.Nice != a.Nice {
		t.Errorf("idle: %+v, want SCHED_IDLE with nice %d", got, a.Nice)
	}
	if err := SetPolicy(tid, Normal); errors.Is(err, unix.EPERM) {
		t.Skip("to leave SCHED_IDLE needs privileges or RLIMIT_NICE")
	} else if err != nil {
		t.Fatal(err)
	}
	if got := mustAttr(t, tid); got != a {
		t.Errorf("after SCHED_IDLE was undone: %+v, want %+v", got, a)
	}
}

func TestSliceIsKeptAndZeroMeansDefault(t *testing.T) {
	tid := sleeper(t)
	fresh := mustAttr(t, tid)
	if fresh.Slice == 0 {
		t.Skip("kernel before 6.12: threads have no slice of their own")
	}
	a := fresh
	a.Policy, a.Slice = Batch, 20*time.Millisecond
	if err := SetAttr(tid, a); err != nil {
		t.Fatal(err)
	}
	if got := mustAttr(t, tid); got != a {
		t.Errorf("got %+v, want %+v", got, a)
	}
	a.Slice = 0
	if err := SetAttr(tid, a); err != nil {
		t.Fatal(err)
	}
	if got := mustAttr(t, tid); got.Slice != fresh.Slice {
		t.Errorf("slice %v after 0, want the default %v", got.Slice, fresh.Slice)
	}
	a.Slice = time.Second
	if err := SetAttr(tid, a); err != nil {
		t.Fatal(err)
	}
	if got := mustAttr(t, tid); got.Slice != 100*time.Millisecond {
		t.Errorf("slice %v after 1 s, want the kernel's maximum of 100 ms", got.Slice)
	}
}

func TestRealTimePriorityIsReadBack(t *testing.T) {
	tid := sleeper(t)
	a := SchedAttr{Policy: FIFO, Priority: 3, ResetOnFork: true}
	if err := SetAttr(tid, a); errors.Is(err, unix.EPERM) {
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatal(err)
		}
		t.Skip("needs CAP_SYS_NICE")
	} else if err != nil {
		t.Fatal(err)
	}
	if got := mustAttr(t, tid); got != a {
		t.Errorf("got %+v, want %+v", got, a)
	}
}

func TestAffinityIsReadBack(t *testing.T) {
	tid := sleeper(t)
	all, err := Affinity(tid)
	if err != nil || all.Empty() {
		t.Fatalf("got %q, %v", all, err)
	}
	for c := range all.All() {
		one := unit.CPUSetOf(c)
		if err := SetAffinity(tid, one); err != nil {
			t.Fatal(err)
		}
		if got, err := Affinity(tid); err != nil || got != one {
			t.Errorf("got %q, %v, want %q", got, err, one)
		}
	}
	if err := SetAffinity(tid, unit.CPUSet{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no CPU: got %v, want EINVAL", err)
	}
}

func TestRefusalsNameThreadAndValue(t *testing.T) {
	tid := sleeper(t)
	tests := map[string]struct {
		err  error
		is   error
		want string
	}{
		"nice out of range":          {SetAttr(tid, SchedAttr{Nice: 20}), unix.EINVAL, "nice 20"},
		"priority of a normal task":  {SetAttr(tid, SchedAttr{Priority: 5}), unix.EINVAL, "priority 5"},
		"policy that does not exist": {SetPolicy(tid, 4), unix.EINVAL, "policy 4"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if !errors.Is(tc.err, tc.is) || !strings.Contains(tc.err.Error(), tc.want) {
				t.Errorf("got %v, want %v with %q", tc.err, tc.is, tc.want)
			}
		})
	}
}

func TestEndedThreadIsGone(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Skip(err)
	}
	tid := cmd.Process.Pid
	_, attr := Attr(tid)
	_, affinity := Affinity(tid)
	_, cookie := CoreCookie(tid)
	for name, err := range map[string]error{
		"attr": attr, "affinity": affinity, "set": SetIdle(tid), "set affinity": SetAffinity(tid, unit.CPUSetOf(0)),
	} {
		if !errors.Is(err, ErrGone) {
			t.Errorf("%s: got %v, want ErrGone", name, err)
		}
	}
	if !errors.Is(cookie, ErrGone) && !errors.Is(cookie, ErrUnsupported) {
		t.Errorf("cookie: got %v, want ErrGone or ErrUnsupported", cookie)
	}
}

func TestCookieIsNoneOrUnsupported(t *testing.T) {
	cookie, err := CoreCookie(sleeper(t))
	t.Logf("cookie %d, %v", cookie, err)
	if cookie != 0 || (err != nil && !errors.Is(err, ErrUnsupported)) {
		t.Errorf("got %d, %v, want 0 or ErrUnsupported", cookie, err)
	}
}

func TestPoliciesHaveTheKernelsNames(t *testing.T) {
	names := map[Policy]string{
		Normal: "SCHED_NORMAL", FIFO: "SCHED_FIFO", RR: "SCHED_RR", Batch: "SCHED_BATCH",
		Idle: "SCHED_IDLE", Deadline: "SCHED_DEADLINE", Ext: "SCHED_EXT", 99: "policy 99",
	}
	for p, want := range names {
		if p.String() != want {
			t.Errorf("policy %d prints %q, want %q", int(p), p, want)
		}
	}
}
