package scx

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/unit"
)

// These tests run the scheduler in the running kernel: see kernel_test.go. The
// BE threads may run only on some CPUs of their shard, for example because an
// LSR pod has another CPU.

// restrict sets the CPUs of all threads of a process.
func (s stage) restrict(pid int, on ...unit.CPU) {
	s.Helper()
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		s.Fatal(err)
	}
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if err := task.SetAffinity(tid, unit.CPUSetOf(on...)); err != nil {
			s.Fatal(err)
		}
	}
}

// sharesOver returns the parts of a CPU that processes use in a time d.
func (s stage) sharesOver(d time.Duration, pids ...int) []float64 {
	s.Helper()
	shares := make([]float64, len(pids))
	for i, pid := range pids {
		shares[i] = -float64(s.cpuTime(pid))
	}
	begun := time.Now()
	time.Sleep(d)
	took := time.Since(begun)
	for i, pid := range pids {
		shares[i] = (shares[i] + float64(s.cpuTime(pid))) / float64(took)
	}
	s.Logf("parts of a CPU: %.2f", shares)
	return shares
}

// logQueues logs what the scheduler's counters say about the shards.
func (s stage) logQueues(sched *Scheduler) {
	s.Helper()
	st := s.status(sched)
	if !st.Running {
		s.Fatalf("thrown out: %v", st.Exit)
	}
	s.Logf("queues %+v, oldest wait %v; %+v", st.Queues, st.OldestWait, st.SchedulerCounts)
}

// TestRestrictedBEUsesIdleCPUs has three threads on one CPU, while two other
// CPUs on which they may run are idle.
func TestRestrictedBEUsesIdleCPUs(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE})
	var pids []int
	for range 3 {
		pids = append(pids, s.start("spin", be, task.Ext, 1))
	}
	time.Sleep(watch / 6)
	for _, pid := range pids {
		s.restrict(pid, 1, 2, 3)
	}
	time.Sleep(watch / 30)
	shares := s.sharesOver(watch/2, pids...)
	s.logQueues(sched)
	for _, share := range shares {
		if share < 0.7 {
			t.Errorf("three threads on three CPUs got %.2f of a CPU each", shares)
			break
		}
	}
}

// TestRestrictedBELeavesTheCPUOfLS has a thread on a CPU that LS keeps busy. On
// the other CPUs on which the thread may run are BE threads.
func TestRestrictedBELeavesTheCPUOfLS(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE}, Group{Cgroup: lsID, Class: LS})
	var pids []int
	for cpu := range unit.CPU(3) {
		pids = append(pids, s.start("spin", be, task.Ext, cpu+1))
	}
	time.Sleep(watch / 6)
	for _, pid := range pids {
		s.restrict(pid, 1, 2, 3)
	}
	s.start("spin", ls, task.Normal, 1)
	time.Sleep(watch / 6)
	shares := s.sharesOver(watch, pids...)
	s.logQueues(sched)
	for _, share := range shares {
		if share < 0.25 {
			t.Errorf("three threads on two CPUs got %.2f of a CPU each", shares)
			break
		}
	}
}

// TestHeadroomLetsBERunThatMayRunNowhereElse has a thread that may run on one
// CPU only, on the last idle core. LS preempts it ten times a second.
func TestHeadroomLetsBERunThatMayRunNowhereElse(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	sched := s.load(Options{Params: Params{Headroom: 1}})
	s.classify(sched, Group{Cgroup: beID, Class: BE}, Group{Cgroup: lsID, Class: LS})
	s.start("spin", ls, task.Normal, 0)
	pulse := s.start("pulse 200 100000", ls, task.Normal, 2)
	pinned := s.start("spin", be, task.Ext, 2)
	time.Sleep(watch / 6)
	before := s.status(sched)
	shares := s.sharesOver(watch, pinned, pulse)
	s.logQueues(sched)
	after := s.status(sched)
	// An emulated CPU may lose its time slice while LS runs.
	if left := 1 - shares[1]; shares[0] < left/2 {
		t.Errorf("the thread got %.2f of its CPU, on which LS left %.2f", shares[0], left)
	}
	if n := after.Relief - before.Relief; n > 0 {
		t.Errorf("it needed %d turns of relief", n)
	}
}
