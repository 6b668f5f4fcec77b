package scx

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
)

// These tests run the scheduler in the running kernel: see kernel_test.go.

func TestLoadsAndUnloads(t *testing.T) {
	s := newStage(t)
	sched := s.load(Options{})
	if st := s.status(sched); !st.Running || st.Exit.Kind != ExitNone {
		t.Fatalf("the scheduler does not run: %+v", st)
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
	for e := range sched.Events() { // the loop ends because the channel is closed
		t.Errorf("event %+v of an idle scheduler that was closed", e)
	}
}

func TestLoadAndUnloadUnderLoad(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	var pids []int
	for range len(s.cpus) {
		pids = append(pids, s.start("spin", be, task.Ext))
	}
	s.start("pulse 2000 2000", ls, task.Normal)
	cycles := 2
	if os.Getenv("TENON_TEST_LONG") == "1" { // under this load an emulated kernel verifies the programs for a quarter of a minute
		cycles = 5
	}
	for cycle := range cycles {
		sched := s.load(Options{Params: Params{SMTRule: true}})
		s.classify(sched, Group{Cgroup: beID, Class: BE}, Group{Cgroup: lsID, Class: LSX})
		before, after, took := s.statusOver(sched, watch/6)
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
	pid := s.start("load", s.Path, task.Normal)
	s.waitUntil("the child loads", 30*time.Second, func() bool {
		now, err := readLoaded(sysfs)
		return err == nil && now.state == enabled && now.ours()
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := s.waitUntil("it is unloaded", 5*time.Second, func() bool {
		now, err := readLoaded(sysfs)
		return err == nil && now.state == disabled
	})
	t.Logf("unloaded %v after SIGKILL", took)
}

func TestAnotherSchedulerIsNotFought(t *testing.T) {
	s := newStage(t)
	sched := s.load(Options{})
	if _, err := Load(Options{CgroupVersion: s.CgroupVersion(), Topology: s.cpus}); !errors.Is(err, ErrBusy) {
		t.Errorf("Load of a second scheduler: %v, want %v", err, ErrBusy)
	}
	if st := s.status(sched); !st.Running {
		t.Errorf("the first scheduler has ended: %v", st.Exit)
	}
}

// ended waits for Exited.
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

// loadForEver runs in a helper process, which loads the scheduler and is then
// killed.
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
