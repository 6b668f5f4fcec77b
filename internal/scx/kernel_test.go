package scx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/task"
)

// The tests of this file run the scheduler in the kernel at hand, which must
// have sched_ext, on a machine with two cores of two threads: CPUs 0 and 1, 2
// and 3. Tolerances are those of an emulated machine.
const watch = 3 * time.Second

// Slots of the tests' pods.
const (
	podA = iota + 1
	podB
)

// during returns what happened in a time.
func (s stage) during(sched *Scheduler, d time.Duration) (before, after Status, took time.Duration) {
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

func TestLoadsAndUnloads(t *testing.T) {
	s := newStage(t)
	sched := s.load(Options{})
	if st := s.status(sched); !st.Running || st.Exit.Kind != ExitNone {
		t.Fatalf("it does not run: %+v", st)
	}
	begun := time.Now()
	if err := sched.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("closed after %v", time.Since(begun))
	now, err := readLoaded(sysfs)
	if err != nil || now.state != disabled {
		t.Errorf("after Close: %+v, %v", now, err)
	}
	if _, err := sched.Status(); !errors.Is(err, ErrClosed) {
		t.Errorf("Status after Close: %v", err)
	}
	for e := range sched.Events() { // ends: it is closed
		t.Errorf("event %+v of an idle scheduler that was closed", e)
	}
}

func TestBERunsInSchedExtAndLSStaysFair(t *testing.T) {
	s := newStage(t)
	be, beID := s.group("be")
	ls, lsID := s.group("ls")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE, Pod: podA}, Group{Cgroup: lsID, Class: LS})
	bePID := s.start("spin", be, task.Ext)
	lsPID := s.start("pulse 20000 10000", ls, task.Normal)
	time.Sleep(watch / 6)
	used, lsUsed := s.used(bePID), s.used(lsPID)
	before, after, took := s.during(sched, watch)
	used, lsUsed = s.used(bePID)-used, s.used(lsPID)-lsUsed

	run := after.Run[BE] - before.Run[BE]
	pod := after.Pods[podA].Run - before.Pods[podA].Run
	lsRun := after.Run[LS] - before.Run[LS]
	t.Logf("in %v BE ran %v by its own count, %v by the hook's, %v by its pod's; LS %v and %v; %+v", took, used, run, pod, lsUsed, lsRun, after.Counts)
	for what, got := range map[string]time.Duration{"hook": run, "pod": pod} {
		if (got-used).Abs() > used/5 || used < watch/2 {
			t.Errorf("BE used %v of %v, the %s counts %v", used, took, what, got)
		}
	}
	if (lsRun-lsUsed).Abs() > lsUsed/4 || lsUsed < watch/6 {
		t.Errorf("LS used %v, the hook counts %v", lsUsed, lsRun)
	}
	attr, err := task.Attr(lsPID)
	if err != nil || attr.Policy != task.Normal {
		t.Errorf("LS has %v, %v", attr.Policy, err)
	}
	if after.Violations != 0 {
		t.Errorf("%d violations without a rule", after.Violations)
	}
}

// TestBENeverStartsBesideLSX goes by the scheduler's own counters. The judge
// of the traces is elsewhere.
func TestBENeverStartsBesideLSX(t *testing.T) {
	s := newStage(t)
	be, beID := s.group("be")
	ls, lsID := s.group("ls")
	sched := s.load(Options{Params: Params{SMTRule: true}})
	s.classify(sched, Group{Cgroup: beID, Class: BE}, Group{Cgroup: lsID, Class: LSX})
	for range 6 {
		s.start("spin", be, task.Ext)
	}
	s.start("pulse 10000 10000", ls, task.Normal, 0)
	time.Sleep(watch / 6)
	before, after, took := s.during(sched, watch)
	lsx, be1 := after.Run[LSX]-before.Run[LSX], after.Run[BE]-before.Run[BE]
	idle := after.ExpelIdle - before.ExpelIdle
	t.Logf("in %v LSX ran %v, BE %v, expelled idle %v, hold idle %v; %+v; delays %v", took, lsx, be1, idle, after.HoldIdle-before.HoldIdle, after.Counts, after.ExpelDelay)
	if lsx < watch/6 {
		t.Fatalf("LSX ran %v only: the stage is not set", lsx)
	}
	if after.Expels == before.Expels {
		t.Error("nobody was expelled")
	}
	if v, r := after.Violations-before.Violations, after.Races-before.Races; v != r {
		t.Errorf("%d violations, of which %d races", v, r)
	}
	// The emulator lets a CPU work on for milliseconds before it hears.
	if idle < lsx*4/10 || idle > lsx*12/10 {
		t.Errorf("the sibling was kept idle for %v, while LSX ran %v", idle, lsx)
	}
	// The other core is BE's, and its own at the naps.
	if be1 < took*3/2 {
		t.Errorf("BE ran %v in %v on four CPUs", be1, took)
	}
}

func TestQuotaIsEnforced(t *testing.T) {
	s := newStage(t)
	be, beID := s.group("be")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE, Pod: podA})
	if err := sched.SetPods([]Pod{{Slot: podA, Quota: 50 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.start("spin", be, task.Ext)
	}
	time.Sleep(watch / 3)
	before, after, took := s.during(sched, watch)
	got := after.Pods[podA].Run - before.Pods[podA].Run
	share := float64(got) / float64(took)
	t.Logf("quota 0.5 CPUs, got %.3f; %d periods in debt, %d parked; %+v", share, after.Pods[podA].Throttled, after.Parked, after.Counts)
	if share < 0.35 || share > 0.6 {
		t.Errorf("with a quota of 0.5 CPUs the pod got %.3f", share)
	}
	if after.Exhausted == 0 || after.Pods[podA].Throttled == 0 {
		t.Error("no throttling is counted")
	}
}

func TestWeightsShareACPU(t *testing.T) {
	s := newStage(t)
	a, aID := s.group("a")
	b, bID := s.group("b")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: aID, Class: BE, Pod: podA}, Group{Cgroup: bID, Class: BE, Pod: podB})
	if err := sched.SetPods([]Pod{{Slot: podA, Weight: 100}, {Slot: podB, Weight: 300}}); err != nil {
		t.Fatal(err)
	}
	for range len(s.cpus) {
		s.start("spin", a, task.Ext)
		s.start("spin", b, task.Ext)
	}
	time.Sleep(watch / 3)
	before, after, _ := s.during(sched, 2*watch)
	gotA, gotB := after.Pods[podA].Run-before.Pods[podA].Run, after.Pods[podB].Run-before.Pods[podB].Run
	t.Logf("weight 100 got %v, weight 300 got %v; %+v", gotA, gotB, after.Counts)
	if ratio := float64(gotB) / float64(gotA); ratio < 2.2 || ratio > 4 {
		t.Errorf("weights 1:3, times 1:%.2f", ratio)
	}
}

func TestCapOfAllBE(t *testing.T) {
	s := newStage(t)
	be, beID := s.group("be")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE})
	if err := sched.SetCap(1500); err != nil {
		t.Fatal(err)
	}
	for range len(s.cpus) + 1 {
		s.start("spin", be, task.Ext)
	}
	time.Sleep(watch / 3)
	before, after, took := s.during(sched, watch)
	cpus := float64(after.Run[BE]-before.Run[BE]) / float64(took)
	t.Logf("cap 1.5 CPUs, got %.2f; %+v", cpus, after.Counts)
	if cpus < 1.1 || cpus > 1.7 {
		t.Errorf("with a cap of 1.5 CPUs BE got %.2f", cpus)
	}
	if after.Capped == 0 {
		t.Error("no refusal by the cap is counted")
	}
}

func TestLoadAndUnloadUnderLoad(t *testing.T) {
	s := newStage(t)
	be, beID := s.group("be")
	ls, lsID := s.group("ls")
	var pids []int
	for range len(s.cpus) {
		pids = append(pids, s.start("spin", be, task.Ext))
	}
	s.start("pulse 2000 2000", ls, task.Normal)
	for cycle := range 5 {
		sched := s.load(Options{Params: Params{SMTRule: true}})
		s.classify(sched, Group{Cgroup: beID, Class: BE}, Group{Cgroup: lsID, Class: LSX})
		before, after, took := s.during(sched, watch/6)
		if run := after.Run[BE] - before.Run[BE]; run < took/2 {
			t.Errorf("cycle %d: BE ran %v in %v; %+v", cycle, run, took, after)
		}
		begun := time.Now()
		if err := sched.ops.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("cycle %d: detached in %v", cycle, time.Since(begun))
		if err := sched.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		if a, err := task.Attr(pid); err != nil || a.Policy != task.Ext {
			t.Errorf("process %d has %v afterwards, %v", pid, a.Policy, err)
		}
	}
}

func TestDeathOfTheOwnerUnloads(t *testing.T) {
	s := newStage(t)
	s.load(Options{}).Close()
	pid := s.start("load", s.path, task.Normal)
	s.until("the child loads", 30*time.Second, func() bool {
		now, err := readLoaded(sysfs)
		return err == nil && now.state == enabled && now.ours()
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := s.until("it is unloaded", 5*time.Second, func() bool {
		now, err := readLoaded(sysfs)
		return err == nil && now.state == disabled
	})
	t.Logf("unloaded %v after SIGKILL", took)
}

func TestAnotherSchedulerIsNotFought(t *testing.T) {
	s := newStage(t)
	sched := s.load(Options{})
	if _, err := Load(Options{CgroupVersion: s.tree.VersionOf("cpu"), Topology: s.cpus}); !errors.Is(err, ErrBusy) {
		t.Errorf("a second one: %v, want %v", err, ErrBusy)
	}
	if st := s.status(sched); !st.Running {
		t.Errorf("the first one does not run any more: %v", st.Exit)
	}
}

// ended waits for the last event.
func (s stage) ended(sched *Scheduler, within time.Duration) Exit {
	s.Helper()
	timeout := time.After(within)
	for {
		select {
		case e, open := <-sched.Events():
			if !open {
				s.Fatal("Events was closed without an exit")
			}
			if end, ok := e.(Exited); ok {
				return end.Exit
			}
		case <-timeout:
			s.Fatalf("no exit within %v", within)
		}
	}
}

func TestExitsAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		do      func() error
		kind    ExitKind
		restart bool
	}{
		"an operator": {do: func() error { return os.WriteFile("/proc/sysrq-trigger", []byte("S"), 0) }, kind: ExitSysrq},
		"hotplug": {do: func() error {
			const online = "/sys/devices/system/cpu/cpu3/online"
			return errors.Join(os.WriteFile(online, []byte("0"), 0), os.WriteFile(online, []byte("1"), 0))
		}, kind: ExitKernel, restart: true},
		"silence": {options: Options{Silence: time.Second}, do: func() error { return nil }, kind: ExitSelf},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			sched := s.load(c.options)
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			end := s.ended(sched, 10*time.Second)
			t.Log(end)
			if end.Kind != c.kind || end.Restart() != c.restart || end.Reason == "" {
				t.Errorf("%+v, want kind %d, restart %v", end, c.kind, c.restart)
			}
			if st := s.status(sched); st.Running || st.Exit != end {
				t.Errorf("status says %+v", st.Exit)
			}
		})
	}
}

func TestStrayIsReported(t *testing.T) {
	s := newStage(t)
	be, beID := s.group("be")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE})
	pid := s.start("pulse 1000 1000", be, task.Normal)
	timeout := time.After(5 * time.Second)
	for {
		select {
		case e := <-sched.Events():
			if stray, ok := e.(Stray); ok && stray.PID == pid {
				if stray.Cgroup != beID || stray.Policy != int(task.Normal) {
					t.Errorf("%+v", stray)
				}
				time.Sleep(100 * time.Millisecond)
				if st := s.status(sched); st.Strays == 0 || st.Strayed == 0 {
					t.Errorf("strays are not counted: %+v", st)
				}
				return
			}
		case <-timeout:
			t.Fatal("no event")
		}
	}
}

// TestKilledBEExitsUnderTheSMTRule has LSX on one thread of each core, so that
// BE may run nowhere.
func TestKilledBEExitsUnderTheSMTRule(t *testing.T) {
	s := newStage(t)
	be, beID := s.group("be")
	ls, lsID := s.group("ls")
	sched := s.load(Options{Params: Params{SMTRule: true}})
	s.classify(sched, Group{Cgroup: beID, Class: BE}, Group{Cgroup: lsID, Class: LSX})
	s.start("spin", ls, task.Normal, 0)
	s.start("spin", ls, task.Normal, 2)
	pid := s.start("spin", be, task.Ext)
	time.Sleep(watch / 3)
	before, after, took := s.during(sched, watch)
	run := after.Run[BE] - before.Run[BE]
	t.Logf("in %v BE ran %v, by %d turns of relief; %+v", took, run, after.Relief-before.Relief, after.Counts)
	if run > took/10 {
		t.Errorf("BE ran %v in %v beside LSX on both cores", run, took)
	}
	if after.Relief == before.Relief {
		t.Error("no relief")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone := s.until("the killed process is gone", 10*time.Second, func() bool { return state(pid) == "" || state(pid) == "Z" })
	t.Logf("gone after %v", gone)
}

// TestLongWaitIsReportedBeforeTheWatchdogActs has fair hogs on all CPUs, which
// BE can do nothing about.
func TestLongWaitIsReportedBeforeTheWatchdogActs(t *testing.T) {
	s := newStage(t)
	be, beID := s.group("be")
	hog, _ := s.group("hog")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE})
	pid := s.start("spin", be, task.Ext)
	for _, c := range s.cpus { // they end before BE, which could not
		s.start("spin", hog, task.Normal, c.ID)
	}
	used := s.used(pid)
	begun := time.Now()
	t.Logf("begun %v after the load", time.Since(sched.since))
	for time.Since(begun) < 15*time.Second {
		select {
		case e := <-sched.Events():
			wait, ok := e.(LongWait)
			if !ok || wait.PID != pid {
				continue
			}
			t.Logf("after %v: %+v", time.Since(begun), wait)
			if wait.Wait < 7*time.Second || wait.Wait > 12*time.Second {
				t.Errorf("reported after a wait of %v", wait.Wait)
			}
			return
		case <-time.After(time.Second):
			st := s.status(sched)
			t.Logf("after %v: oldest wait %v, queues %+v, %d long waits, %d starts", time.Since(begun), st.OldestWait, st.LLCs, st.LongWaits, st.Starts)
		}
	}
	// From Linux 7.0 on a deadline server lets BE run a little.
	if got := s.used(pid) - used; sched.variant != V71 || got < 100*time.Millisecond {
		t.Errorf("no event in 15 s, in which BE ran %v; %+v", got, s.status(sched))
	}
}

// until waits for a condition and returns how long.
func (s stage) until(what string, within time.Duration, is func() bool) time.Duration {
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

// state is the letter of /proc/PID/stat; "": there is no such process.
func state(pid int) string {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	return string(data[strings.LastIndexByte(string(data), ')')+2])
}

// loadForEver is the role of an owner that dies.
func loadForEver() {
	cpus, err := readTopology()
	if err == nil {
		_, err = Load(Options{CgroupVersion: 2, Topology: cpus})
	}
	fmt.Fprintln(os.Stderr, "loaded:", err)
	for {
		time.Sleep(time.Hour)
	}
}
