package scx

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/task"
)

// TestTheSchedulerNeedsNoSysAdmin runs the scheduler in the running kernel: see
// kernel_test.go. It loads the scheduler on a thread without CAP_SYS_ADMIN, as a
// tenond has it where the chart's value agent.sysAdmin is false.
func TestTheSchedulerNeedsNoSysAdmin(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	type loading struct {
		sched *Scheduler
		err   error
	}
	loads := make(chan loading)
	go func() {
		// The thread stays locked, so that it ends with this goroutine.
		runtime.LockOSThread()
		if err := dropSysAdmin(); err != nil {
			loads <- loading{nil, err}
			return
		}
		sched, err := Load(Options{CgroupVersion: s.CgroupVersion(), Topology: s.cpus})
		loads <- loading{sched, err}
	}()
	l := <-loads
	if l.err != nil {
		t.Fatal(l.err)
	}
	t.Cleanup(func() {
		if err := l.sched.Close(); err != nil {
			t.Error(err)
		}
	})
	s.classify(l.sched, Group{Cgroup: beID, Class: BE})
	pid := s.start("spin", be, task.Ext, 1)
	time.Sleep(watch / 30)
	if st := s.status(l.sched); !st.Running || s.cpuTime(pid) == 0 {
		t.Errorf("the scheduler runs: %t, and its thread ran for %v", st.Running, s.cpuTime(pid))
	}
}

// dropSysAdmin takes CAP_SYS_ADMIN from the calling thread.
func dropSysAdmin() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	sets[0].Permitted &^= 1 << unix.CAP_SYS_ADMIN
	sets[0].Inheritable &^= 1 << unix.CAP_SYS_ADMIN
	return unix.Capset(&header, &sets[0])
}
