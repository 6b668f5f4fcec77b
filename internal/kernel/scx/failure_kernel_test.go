package scx

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/unit"
)

// These tests run the scheduler in the running kernel: see kernel_test.go.

// startSaturated starts LS processes that keep every CPU busy until the test
// ends, and a BE process that must wait.
func startSaturated(t *testing.T) (s stage, sched *Scheduler, be string, pid int) {
	t.Helper()
	s = newStage(t)
	be, beID := s.Group("be")
	ls, lsID := s.Group("ls")
	if err := s.Tree.WriteCPUWeight(be, cgroup.CPUWeight{Idle: true}); err != nil {
		t.Fatal(err)
	}
	sched = s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE}, Group{Cgroup: lsID, Class: LS})
	pid = s.start("spin", be, task.Ext)
	for _, c := range s.cpus {
		s.start("spin", ls, task.Normal, c.ID)
	}
	time.Sleep(watch / 6)
	return s, sched, be, pid
}

// moveToFair moves all threads of a process to the kernel's fair class. The
// agent does so before it kills a process, and after a LongWait.
func (s stage) moveToFair(pid int) {
	s.Helper()
	threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return // the process has ended
	}
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if err := task.SetPolicy(tid, task.Normal); err != nil {
			s.Logf("thread %d: %v", tid, err)
		}
	}
}

func gone(pid int) bool { return state(pid) == "" || state(pid) == "Z" }

// TestKilledBEIsGoneWhileLSHasEveryCPU kills a BE process that gets no CPU. A
// killed thread must run in order to end, and sched_ext gives it only CPUs that
// no fair thread needs.
func TestKilledBEIsGoneWhileLSHasEveryCPU(t *testing.T) {
	t.Run("after it was given back", func(t *testing.T) {
		s, sched, be, pid := startSaturated(t)
		s.moveToFair(pid)
		if err := s.Tree.WriteCPUWeight(be, cgroup.CPUWeight{Weight: 100}); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(filepath.Join("/sys/fs/cgroup", be, "cgroup.kill"), []byte("1"), 0)
		if err != nil { // cgroup v1
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("gone after %v", s.waitUntil("the killed process is gone", 10*time.Second, func() bool { return gone(pid) }))
		if st := s.status(sched); !st.Running {
			t.Errorf("the scheduler has ended: %v", st.Exit)
		}
	})
	t.Run("by somebody else", func(t *testing.T) {
		s, sched, _, pid := startSaturated(t)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for !gone(pid) {
			select {
			case e := <-sched.Events():
				if wait, ok := e.(LongWait); ok && wait.PID == pid {
					t.Logf("after %v: %+v", time.Since(begun), wait)
					s.moveToFair(pid)
				}
			case <-time.After(50 * time.Millisecond):
			}
			if time.Since(begun) > 20*time.Second {
				logStuck(t)
				t.Fatalf("the killed process still exists after %v: %+v", time.Since(begun), s.status(sched))
			}
		}
		t.Logf("gone after %v", time.Since(begun))
		if st := s.status(sched); !st.Running {
			t.Errorf("the scheduler has ended: %v", st.Exit)
		}
	})
}

// TestUnansweredLongWaitEndsTheScheduler does not react to LongWait events, but
// sends heartbeats. The scheduler must end itself before the kernel's watchdog
// unloads it.
func TestUnansweredLongWaitEndsTheScheduler(t *testing.T) {
	s, sched, _, pid := startSaturated(t)
	begun, used := time.Now(), s.cpuTime(pid)
	timeout := time.After(28 * time.Second)
	for told := 0; ; {
		select {
		case e := <-sched.Events():
			if _, ok := e.(LongWait); ok {
				told++
				continue
			}
			end, ok := e.(Exited)
			if !ok {
				continue
			}
			took := time.Since(begun)
			t.Logf("ended after %v and %d reports: %v", took, told, end.Exit)
			if end.Kind != ExitSelf || !strings.Contains(end.Message, "waits for too long") {
				t.Errorf("the scheduler ended by %+v, want ExitSelf", end.Exit)
			}
			if took < 12*time.Second || took > 24*time.Second {
				t.Errorf("the scheduler ended after %v, want about 15 s", took)
			}
			if told == 0 {
				t.Error("no long wait was reported")
			}
			before := s.cpuTime(pid)
			s.waitUntil("BE runs under the fair class", 20*time.Second, func() bool { return s.cpuTime(pid) > before })
			return
		case <-time.After(time.Second):
			if err := sched.Beat(); err != nil {
				t.Logf("beat: %v", err)
			}
		case <-timeout:
			logStuck(t)
			t.Fatalf("the scheduler did not end within %v; BE ran %v: %+v", time.Since(begun), s.cpuTime(pid)-used, s.status(sched))
		}
	}
}

// TestMoreGroupsThanTheTableTakes classifies more groups than fit into the
// table. The last group must stay Normal. It must get its class when the table
// has room again.
func TestMoreGroupsThanTheTableTakes(t *testing.T) {
	s := newStage(t)
	first, firstID := s.Group("first")
	last, lastID := s.Group("last")
	sched := s.load(Options{})
	const room = int(scheduler613ScxLimitSCX_GROUPS)
	groups := []Group{{Cgroup: firstID, Class: LS}}
	for i := range room {
		groups = append(groups, Group{Cgroup: 1<<40 + uint64(i), Class: BE}) // the number is not the id of a directory
	}
	groups = append(groups, Group{Cgroup: lastID, Class: LSX})
	if err := sched.Classify(groups); err == nil || !strings.Contains(err.Error(), "table of "+strconv.Itoa(room)) {
		t.Errorf("%d groups in a table of %d: %v", len(groups), room, err)
	}
	s.start("pulse 20000 10000", first, task.Normal, 0)
	s.start("pulse 20000 10000", last, task.Normal, 2)
	time.Sleep(watch / 6)
	before, after, took := s.statusOver(sched, watch)
	if after.Run[LS]-before.Run[LS] < took/6 || after.Run[LSX] != 0 {
		t.Errorf("in %v the first group ran %v as LS and the group without room %v as LSX, want more than 0 and 0", took, after.Run[LS]-before.Run[LS], after.Run[LSX])
	}
	s.classify(sched, groups[0], groups[len(groups)-1])
	time.Sleep(watch / 6)
	before, after, took = s.statusOver(sched, watch)
	if after.Run[LSX]-before.Run[LSX] < took/6 {
		t.Errorf("with room for it the last group ran %v of %v as LSX", after.Run[LSX]-before.Run[LSX], took)
	}
}

// beByCPU returns the run time of BE on each CPU.
func (s stage) beByCPU(sched *Scheduler) map[unit.CPU]time.Duration {
	s.Helper()
	ran := map[unit.CPU]time.Duration{}
	for _, c := range s.cpus {
		var one scheduler613ScxCpu
		if err := element(sched.view.cpus, int(c.ID), &one); err != nil {
			s.Fatal(err)
		}
		ran[c.ID] = time.Duration(one.ClassNs[scheduler613QosClassQOS_BE])
	}
	return ran
}

// TestIsolatedCPUs needs a kernel with isolcpus= on its command line. If that
// kernel accepts the scheduler, BE must stay off those CPUs. Otherwise the
// error must name isolcpus, and BE runs in the fair class.
func TestIsolatedCPUs(t *testing.T) {
	s := newStage(t)
	data, err := os.ReadFile("/sys/devices/system/cpu/isolated")
	if err != nil {
		t.Fatal(err)
	}
	isolated, err := unit.ParseCPUSet(strings.TrimSpace(string(data)))
	if err != nil || isolated.Len() == 0 {
		t.Skipf("no CPU is isolated: %q, %v", data, err)
	}
	be, beID := s.Group("be")
	pid := s.start("spin", be, task.Ext)
	used := s.cpuTime(pid)
	sched, err := Load(Options{CgroupVersion: s.CgroupVersion(), Topology: s.cpus, Params: Params{SMTRule: true}})
	if err != nil {
		t.Log(err)
		if !strings.Contains(err.Error(), "isolcpus") {
			t.Errorf("the error does not name isolcpus: %v", err)
		}
		if now, err := readLoaded(sysfs); err != nil || now.state != disabled {
			t.Errorf("after the failed load: %+v, %v", now, err)
		}
		s.waitUntil("BE runs under the fair class", 5*time.Second, func() bool { return s.cpuTime(pid) > used })
		return
	}
	t.Cleanup(func() {
		if err := sched.Close(); err != nil {
			t.Error(err)
		}
	})
	s.classify(sched, Group{Cgroup: beID, Class: BE})
	for range len(s.cpus) {
		s.start("spin", be, task.Ext)
	}
	time.Sleep(watch / 6)
	before := s.beByCPU(sched)
	time.Sleep(watch)
	for cpu, ran := range s.beByCPU(sched) {
		ran -= before[cpu]
		t.Logf("CPU %d ran BE for %v", cpu, ran)
		if isolated.Has(cpu) && ran > 0 {
			t.Errorf("BE ran %v on CPU %d, which is isolated", ran, cpu)
		}
	}
	if run := s.status(sched).Run[BE]; run < watch {
		t.Errorf("BE ran %v", run)
	}
}
