package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/model/node"
)

// TestTheWatchdogMayBeAContainerOfItsOwn starts a watchdog separately from
// tenond. It must wait for a lease, guard the lease of each tenond, and narrow
// best-effort work when a tenond is lost. Then it must keep running.
func TestTheWatchdogMayBeAContainerOfItsOwn(t *testing.T) {
	inTurn(t)
	s := plantSite(t, generous)
	s.args = []string{"--no-watchdog"}
	w := exec.Command(filepath.Join(s.bin, "tenond"), "watchdog", "--stay", "--state-dir", s.state)
	w.Stderr = os.Stderr
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- w.Wait() }()
	t.Cleanup(func() {
		_ = w.Process.Signal(syscall.SIGTERM)
		<-over
	})
	for range 2 {
		d := s.tenond()
		if pid := s.awaitWatchdog(); pid != w.Process.Pid {
			t.Fatalf("process %d guards the lease, and not %d", pid, w.Process.Pid)
		}
		bound := s.bound()
		then := time.Now()
		d.signal(syscall.SIGKILL)
		<-d.end
		// On a busy machine, BE may already be within its bound.
		if err := s.tree.WriteCPUMax(string(s.path(batch)), cgroup.CPUMax{Quota: node.NoQuota, Period: bound.Period}); err != nil {
			t.Fatal(err)
		}
		s.within2s(then, bound)
	}
	d := s.tenond()
	d.stop()
	if pid, guarded := lease.IsGuarded(s.state); !guarded || pid != w.Process.Pid {
		t.Errorf("guarded %v, by process %d", guarded, pid)
	}
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Errorf("after SIGTERM the watchdog ended with %v", err)
	}
	over <- nil
	s.restore()
}
