package scx

import (
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
)

// These tests run the scheduler in the running kernel: see kernel_test.go.

func TestStrayIsReported(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
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

// TestKilledBEExitsUnderTheSMTRule runs LSX, LS work that expels BE from its
// core, on one thread of each core. So the SMT rule keeps BE off all CPUs. A BE
// process that is killed must still end.
func TestKilledBEExitsUnderTheSMTRule(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	sched := s.load(Options{Params: Params{SMTRule: true}})
	s.classify(sched, Group{Cgroup: beID, Class: BE}, Group{Cgroup: lsID, Class: LSX})
	s.start("spin", ls, task.Normal, 0)
	s.start("spin", ls, task.Normal, 2)
	pid := s.start("spin", be, task.Ext)
	time.Sleep(watch / 3)
	before, after, took := s.statusOver(sched, watch)
	run := after.Run[BE] - before.Run[BE]
	t.Logf("in %v BE ran %v, by %d turns of relief; %+v", took, run, after.Relief-before.Relief, after.SchedulerCounts)
	if run > took/10 {
		t.Errorf("BE ran %v in %v beside LSX on both cores", run, took)
	}
	if after.Relief == before.Relief {
		t.Error("BE got no relief")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone := s.waitUntil("the killed process is gone", 10*time.Second, func() bool { return state(pid) == "" || state(pid) == "Z" })
	t.Logf("gone after %v", gone)
}

// TestLongWaitIsReportedBeforeTheWatchdogActs runs fair threads on all CPUs, so
// that BE gets no CPU. A LongWait must come before the kernel's watchdog ends
// the scheduler.
func TestLongWaitIsReportedBeforeTheWatchdogActs(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	hog, _ := s.Group("hog")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE})
	pid := s.start("spin", be, task.Ext)
	for _, c := range s.cpus { // the cleanup ends these before BE, which could not end without a CPU
		s.start("spin", hog, task.Normal, c.ID)
	}
	used := s.cpuTime(pid)
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
			t.Logf("after %v: oldest wait %v, queues %+v, %d long waits, %d starts", time.Since(begun), st.OldestWait, st.Queues, st.LongWaits, st.Starts)
		}
	}
	// Since Linux 7.0, the kernel's deadline server lets BE run a little.
	if got := s.cpuTime(pid) - used; sched.variant != V71 || got < 100*time.Millisecond {
		t.Errorf("no event in 15 s, in which BE ran %v; %+v", got, s.status(sched))
	}
}
