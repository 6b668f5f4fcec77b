package scx

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
)

// The tests of this file and of the files *_kernel_test.go run the scheduler in
// the running kernel, which must have sched_ext. They need a machine that has
// two cores with two threads each: CPUs 0 and 1, and CPUs 2 and 3. The
// tolerances are wide enough for an emulated machine.
const watch = 3 * time.Second

// The slots of the pods in these tests.
const (
	podA = iota + 1
	podB
)

// statusOver waits for a time d, and returns the status before and after it.
func (s stage) statusOver(sched *Scheduler, d time.Duration) (before, after Status, took time.Duration) {
	s.Helper()
	before = s.status(sched)
	begun := time.Now()
	time.Sleep(d)
	after = s.status(sched)
	took = time.Since(begun)
	if !after.Running {
		s.Fatalf("thrown out: %v", after.Exit)
	}
	return before, after, took
}

func (s stage) classify(sched *Scheduler, groups ...Group) {
	s.Helper()
	if err := sched.Classify(groups); err != nil {
		s.Fatal(err)
	}
}

// waitUntil waits for a condition and returns the waiting time.
func (s stage) waitUntil(what string, within time.Duration, is func() bool) time.Duration {
	s.Helper()
	begun := time.Now()
	for !is() {
		if time.Since(begun) > within {
			s.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begun)
}

// state is the process state of /proc/PID/stat; it is "" if the process does
// not exist.
func state(pid int) string {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	return string(data[strings.LastIndexByte(string(data), ')')+2])
}

func TestBERunsInSchedExtAndLSStaysFair(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE, Pod: podA}, Group{Cgroup: lsID, Class: LS})
	bePID := s.start("spin", be, task.Ext)
	lsPID := s.start("pulse 20000 10000", ls, task.Normal)
	time.Sleep(watch / 6)
	used, lsUsed := s.cpuTime(bePID), s.cpuTime(lsPID)
	before, after, took := s.statusOver(sched, watch)
	used, lsUsed = s.cpuTime(bePID)-used, s.cpuTime(lsPID)-lsUsed

	run := after.Run[BE] - before.Run[BE]
	pod := after.Pods[podA].Run - before.Pods[podA].Run
	lsRun := after.Run[LS] - before.Run[LS]
	t.Logf("in %v BE ran %v by its own count, %v by the hook's, %v by its pod's; LS %v and %v; %+v", took, used, run, pod, lsUsed, lsRun, after.SchedulerCounts)
	for what, got := range map[string]time.Duration{"hook": run, "pod": pod} {
		if (got-used).Abs() > used/5 || used < watch/2 {
			t.Errorf("BE used %v of %v, the %s counts %v", used, took, what, got)
		}
	}
	// For the kernel, a thread runs from the start of a switch. For the hook,
	// it runs from the end of the switch. Between the two, an emulated CPU can
	// lose its time slice, and LS switches a hundred times.
	if (lsRun-lsUsed).Abs() > lsUsed/2 || lsUsed < watch/6 {
		t.Errorf("LS used %v, the hook counts %v", lsUsed, lsRun)
	}
	attr, err := task.Attr(lsPID)
	if err != nil || attr.Policy != task.Normal {
		t.Errorf("LS has %v, %v", attr.Policy, err)
	}
	if after.Violations != 0 {
		t.Errorf("%d violations without the SMT rule", after.Violations)
	}
}

// TestBENeverStartsBesideLSX checks the scheduler's counters. LSX is LS work
// that expels BE from its core. Other tests check the kernel's traces.
func TestBENeverStartsBesideLSX(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	sched := s.load(Options{Params: Params{SMTRule: true}})
	s.classify(sched, Group{Cgroup: beID, Class: BE}, Group{Cgroup: lsID, Class: LSX})
	for range 6 {
		s.start("spin", be, task.Ext)
	}
	s.start("pulse 10000 10000", ls, task.Normal, 0)
	time.Sleep(watch / 6)
	before, after, took := s.statusOver(sched, watch)
	lsx, be1 := after.Run[LSX]-before.Run[LSX], after.Run[BE]-before.Run[BE]
	idle := after.ExpelIdle - before.ExpelIdle
	t.Logf("in %v LSX ran %v, BE %v, expelled idle %v, hold idle %v; %+v; delays %v", took, lsx, be1, idle, after.HoldIdle-before.HoldIdle, after.SchedulerCounts, after.ExpelDelay)
	if lsx < watch/6 {
		t.Fatalf("LSX ran only %v: the set-up of the test failed", lsx)
	}
	if after.Expels == before.Expels {
		t.Error("no BE thread was expelled")
	}
	if v, r := after.Violations-before.Violations, after.Races-before.Races; v != r {
		t.Errorf("%d violations, of which %d races", v, r)
	}
	// In an emulator, a CPU may receive an interrupt milliseconds late.
	if idle < lsx*4/10 || idle > lsx*12/10 {
		t.Errorf("the sibling was kept idle for %v, while LSX ran %v", idle, lsx)
	}
	// BE has the other core all the time. It also has the core of LSX while LSX
	// sleeps.
	if be1 < took*3/2 {
		t.Errorf("BE ran %v in %v on four CPUs", be1, took)
	}
}
