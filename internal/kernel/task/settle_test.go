package task

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// crowd is a model of threads. Its map has says which threads have the
// attribute.
type crowd struct {
	has    map[int]bool
	next   int
	forks  int // remaining forks; each changed thread forks once
	child  bool
	broken map[int]error
}

func (c *crowd) list() ([]int, error) { return slices.Sorted(maps.Keys(c.has)), nil }

func (c *crowd) change() change {
	return change{
		name:   "the attribute",
		isDone: func(tid int) (bool, error) { return c.has[tid], nil },
		make: func(tid int) error {
			if err := c.broken[tid]; err != nil {
				return err
			}
			if c.forks > 0 { // a child appears just before the change
				c.forks--
				c.next++
				c.has[c.next] = c.child
			}
			c.has[tid] = true
			return nil
		},
		undo: func(tid int) error { c.has[tid] = false; return nil },
	}
}

func TestSettleLooksUntilNobodyIsLeft(t *testing.T) {
	boom := errors.New("boom")
	tests := map[string]struct {
		crowd   crowd
		changed int
		err     string
	}{
		"nobody":                    {crowd: crowd{}, changed: 0},
		"all have it":               {crowd: crowd{has: map[int]bool{1: true, 2: true}}, changed: 0},
		"two do not":                {crowd: crowd{has: map[int]bool{1: false, 2: true, 3: false}}, changed: 2},
		"each makes another":        {crowd: crowd{has: map[int]bool{1: false}, next: 1, forks: 5}, changed: 6},
		"endless forks":             {crowd: crowd{has: map[int]bool{1: false}, next: 1, forks: 1000}, changed: 20, err: "20 lists in a row"},
		"one cannot be changed":     {crowd: crowd{has: map[int]bool{1: false, 2: false}, broken: map[int]error{1: boom}}, changed: 1, err: "boom"},
		"one has ended":             {crowd: crowd{has: map[int]bool{1: true, 2: false}, broken: map[int]error{2: ErrGone}}, changed: 0, err: "20 lists"},
		"the kernel does not do it": {crowd: crowd{has: map[int]bool{1: false, 2: false}, broken: map[int]error{1: ErrUnsupported}}, err: "not supported"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n, err := settle(tc.crowd.list, tc.crowd.change())
			if n != tc.changed {
				t.Errorf("changed %d, want %d", n, tc.changed)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %v, want %q", err, tc.err)
			}
		})
	}
}

func TestSettleGivesBackWhoWasTakenForAnother(t *testing.T) {
	c := crowd{has: map[int]bool{1: false, 2: false}}
	looks := 0
	list := func() ([]int, error) {
		if looks++; looks > 1 {
			return []int{1}, nil // tid 2 belongs to another process now
		}
		return c.list()
	}
	if n, err := settle(list, c.change()); n != 1 || err != nil || !c.has[1] || c.has[2] {
		t.Errorf("changed %d, %v: %v, want only thread 1 changed", n, err, c.has)
	}
}

func TestSettleEndsWithItsList(t *testing.T) {
	gone := fmt.Errorf("the group is gone")
	if _, err := settle(func() ([]int, error) { return nil, gone }, (&crowd{}).change()); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

// bestPolicy returns Ext. If the kernel has no sched_ext, it returns Batch,
// which the code under test treats in the same way.
func bestPolicy(t *testing.T) Policy {
	t.Helper()
	switch _, err := Extend(Fixed(sleeper(t)), nil); {
	case errors.Is(err, ErrUnsupported):
		t.Logf("kernel without SCHED_EXT, tried with SCHED_BATCH: %v", err)
		return Batch
	case err != nil:
		t.Fatal(err)
	}
	return Ext
}

func TestConvertedThreadKeepsNiceAndComesBack(t *testing.T) {
	to := bestPolicy(t)
	tid := sleeper(t)
	a := nicer(mustAttr(t, tid))
	if err := SetAttr(tid, a); err != nil {
		t.Fatal(err)
	}
	if n, err := convert(Fixed(tid), to, nil); n != 1 || err != nil {
		t.Fatalf("changed %d, %v, want 1", n, err)
	}
	if got := mustAttr(t, tid); got.Policy != to || got.Nice != a.Nice {
		t.Errorf("got %+v, want policy %v and nice %d", got, to, a.Nice)
	}
	if n, err := convert(Fixed(tid), to, nil); n != 0 || err != nil {
		t.Errorf("again: changed %d, %v, want 0", n, err)
	}
	if n, err := convertBack(Fixed(tid), to); n != 1 || err != nil {
		t.Fatalf("changed %d back, %v, want 1", n, err)
	}
	if got := mustAttr(t, tid); got != a {
		t.Errorf("after the conversion back: %+v, want %+v", got, a)
	}
}

func TestRealTimeAndSparedThreadsAreNotConverted(t *testing.T) {
	to := bestPolicy(t)
	realtime, spared, idle := sleeper(t), sleeper(t), sleeper(t)
	want := SchedAttr{Policy: RR, Priority: 5}
	if err := SetAttr(realtime, want); errors.Is(err, unix.EPERM) {
		t.Skip("needs CAP_SYS_NICE")
	} else if err != nil {
		t.Fatal(err)
	}
	if err := SetIdle(idle); err != nil {
		t.Fatal(err)
	}
	all := []int{realtime, spared, idle}
	n, err := convert(Fixed(all...), to, func(tid int) bool { return tid == spared })
	if n != 1 || err != nil {
		t.Errorf("changed %d, %v, want 1", n, err)
	}
	if got := mustAttr(t, realtime); got != want {
		t.Errorf("real-time thread: %+v, want %+v", got, want)
	}
	if got, err := CountPolicies(append(all, 1<<30)); err != nil || got.RealTime != 1 || to == Ext && got != (Policies{Ext: 1, Fair: 1, RealTime: 1}) {
		t.Errorf("counted %+v, %v, want one of each", got, err)
	}
	if got := mustAttr(t, idle); got.Policy != to {
		t.Errorf("idle thread: %+v, want %v", got, to)
	}
}

// storm starts a process whose children fork endlessly; at most a few hundred
// exist at once. It returns a List of all of them.
func storm(t *testing.T) List {
	t.Helper()
	cmd := exec.Command("sh", "-c", `s() { while :; do (exec sleep 0.005) & (s2) & wait; done; }; s2() { sleep 0.003; (sleep 0.001); }; s & wait`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	group := cmd.Process.Pid
	t.Cleanup(func() {
		_ = syscall.Kill(-group, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return func() ([]int, error) {
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			return nil, err
		}
		var tids []int
		for _, file := range stats {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			_, rest, _ := strings.Cut(string(text), ") ")
			f := strings.Fields(rest)
			if len(f) > 2 && f[2] == strconv.Itoa(group) && f[0] != "Z" {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				tids = append(tids, pid)
			}
		}
		return tids, nil
	}
}

// countPolicy counts the threads that have policy p.
func countPolicy(tids []int, p Policy) (n int) {
	for _, tid := range tids {
		if got, err := PolicyOf(tid); err == nil && got == p {
			n++
		}
	}
	return n
}

func TestForkStormIsConvertedWhole(t *testing.T) {
	to := bestPolicy(t)
	list := storm(t)
	for round := range 2 {
		time.Sleep(20 * time.Millisecond)
		n, err := convert(list, to, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			tids, _ := list()
			if got := countPolicy(tids, Normal); got > 0 {
				t.Errorf("round %d: %d of %d threads are normal, want none", round, got, len(tids))
			}
			time.Sleep(2 * time.Millisecond)
		}
		back, err := convertBack(list, to)
		if err != nil {
			t.Fatal(err)
		}
		tids, _ := list()
		if got := countPolicy(tids, to); got > 0 || n == 0 || back == 0 {
			t.Errorf("round %d: converted %d, back %d, then %d left: want all back", round, n, back, got)
		}
	}
}

// TestSettleChangesWhatAListHasFound has a list that misses threads. All others
// must get the attribute, and none may lose it, because a thread that the list
// lacks may still be there.
func TestSettleChangesWhatAListHasFound(t *testing.T) {
	missed, calls := errors.New("missed"), 0
	c := &crowd{has: map[int]bool{1: false, 2: false, 3: true}}
	list := func() ([]int, error) {
		calls++
		if calls == 1 {
			return []int{1, 2, 3}, missed
		}
		return []int{2, 3}, missed
	}
	if n, err := settle(list, c.change()); n != 2 || !errors.Is(err, missed) || !c.has[1] || !c.has[2] {
		t.Errorf("%d threads, %v, %v", n, err, c.has)
	}
	c = &crowd{has: map[int]bool{1: false}}
	if n, err := settle(func() ([]int, error) { return nil, missed }, c.change()); n != 0 || !errors.Is(err, missed) {
		t.Errorf("%d threads, %v", n, err)
	}
}
