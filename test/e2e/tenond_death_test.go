package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/node"
)

func TestTenondKilledLeavesBEInItsSafeBound(t *testing.T) {
	s := plantSite(t, generous)
	d := s.tenond()
	s.awaitRoom()
	s.awaitWatchdog()
	bound, then := s.bound(), time.Now()
	d.signal(syscall.SIGKILL)
	s.within2s(then, bound)
	s.checkUntouched(service, s.before)
	s.restore()
}

func TestTenondStoppedLeavesBEInItsSafeBoundAndGivesBackWhenContinued(t *testing.T) {
	s := plantSite(t, generous)
	d := s.tenond()
	s.awaitRoom()
	s.awaitWatchdog()
	bound, then := s.bound(), time.Now()
	d.signal(syscall.SIGSTOP)
	s.within2s(then, bound)
	d.signal(syscall.SIGCONT)
	s.awaitRoom()
	d.stop()
	s.restore()
}

func TestTenondStartsAnotherWatchdog(t *testing.T) {
	inTurn(t)
	s := plantSite(t, generous)
	d := s.tenond()
	first := s.awaitWatchdog()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is another watchdog", func() bool { return s.awaitWatchdog() != first })
	s.awaitRoom()
	bound, then := s.bound(), time.Now()
	d.signal(syscall.SIGKILL)
	s.within2s(then, bound)
	s.restore()
}

// TestTenondsWatchdogIsASessionOfItsOwn sends a signal to the session and to
// the process group of tenond. It must not end the watchdog. The watchdog must
// have none of tenond's files open.
func TestTenondsWatchdogIsASessionOfItsOwn(t *testing.T) {
	s := plantSite(t, generous)
	s.tenond()
	pid := s.awaitWatchdog()
	if sid, err := syscall.Getpgid(pid); err != nil || sid != pid {
		t.Errorf("process group %d, %v, want %d", sid, err, pid)
	}
	for _, fd := range []string{"0", "1", "2"} {
		if to, err := os.Readlink(filepath.Join("/proc", itoa(pid), "fd", fd)); err != nil || to != os.DevNull {
			t.Errorf("descriptor %s is %s, %v", fd, to, err)
		}
	}
}

// TestTenondAnnouncesItsStop checks that the watchdog narrows nothing after an
// announced stop, and that the next daemon takes over the knobs. A test of
// internal/machine/lease covers the full minute on a virtual clock.
func TestTenondAnnouncesItsStop(t *testing.T) {
	inTurn(t)
	s := plantSite(t, generous)
	d := s.tenond()
	s.awaitRoom()
	s.awaitWatchdog()
	d.stop()
	left := s.dump(t)
	begun := s.countIntents()
	file, err := os.ReadFile(filepath.Join(s.state, "lease"))
	if err != nil || !strings.Contains(string(file), " announced 1 ") {
		t.Errorf("no stop is announced in the lease: %v\n%s", err, file)
	}
	time.Sleep(4 * time.Second) // longer than the watchdog waits after an unannounced loss
	if diff := cmp.Diff(left, s.dump(t)); diff != "" {
		t.Errorf("an announced stop changed (-before +after):\n%s", diff)
	}
	if n := s.countIntents(); n != begun {
		t.Errorf("%d writes after the stop", n-begun)
	}
	next := s.tenond()
	next.await("continuing with the state of the last tenond", 1)
	if pid := s.awaitWatchdog(); pid == 0 {
		t.Error("the watchdog has no name")
	}
	next.stop()
	s.restore()
}

// TestTenondRestartedWritesNothingIfNothingChanged restarts tenond. Its
// configuration makes no decision depend on the load of the machine.
func TestTenondRestartedWritesNothingIfNothingChanged(t *testing.T) {
	steady := strings.NewReplacer("Percent: 100", "Percent: 30", "Percent: 5", "Percent: 30").Replace(generous)
	s := plantSite(t, steady)
	d := s.tenond()
	eventually(t, "BE has its share", func() bool { return s.quota().Quota != node.NoQuota && s.weight(batch).Idle })
	time.Sleep(500 * time.Millisecond)
	d.stop()
	before, begun := s.dump(t), s.countIntents()
	next := s.tenond()
	time.Sleep(2 * time.Second) // about twenty ticks
	if n := s.countIntents(); n != begun {
		t.Errorf("the restart began %d writes", n-begun)
	}
	if diff := cmp.Diff(before, s.dump(t)); diff != "" {
		t.Errorf("the restart changed (-before +after):\n%s", diff)
	}
	next.stop()
	s.restore()
}

func TestTenondRefusesASecondOne(t *testing.T) {
	s := plantSite(t, generous)
	d := s.tenond()
	second := s.launch()
	<-second.end
	if second.ProcessState.ExitCode() <= 0 || !strings.Contains(second.said(), itoa(d.Process.Pid)) {
		t.Errorf("the second tenond: %v\n%s", second.ProcessState, second.said())
	}
	if lines := strings.Count(second.said(), "\n"); lines != 1 {
		t.Errorf("%d lines:\n%s", lines, second.said())
	}
	s.awaitRoom() // the first daemon continues
	d.stop()
	s.restore()
}

func TestTenondWithABadNewConfigKeepsTheOldOne(t *testing.T) {
	s := plantSite(t, generous)
	d := s.tenond()
	s.awaitRoom()
	s.configure(strings.Replace(generous, "class: BE", "class: XX", 1))
	d.signal(syscall.SIGHUP)
	d.await("refused", 1)
	if !regexp.MustCompile(`line 6: .*class.*XX`).MatchString(d.said()) {
		t.Errorf("the fault is not named:\n%s", d.said())
	}
	time.Sleep(time.Second) // ten ticks
	// The message appears twice if a tick saw the change before the signal
	// came, because the signal makes tenond read the file again.
	if n := strings.Count(d.said(), "refused"); n > 2 {
		t.Errorf("the log names the fault %d times, want at most 2:\n%s", n, d.said())
	}
	if !s.weight(batch).Idle {
		t.Error("the old configuration is not in force")
	}
	s.awaitRoom()

	s.configure(strings.Replace(generous, "beClass: {cpuQOS: {enable: true}}", "beClass: {cpuQOS: {enable: false}}", 1))
	d.signal(syscall.SIGHUP)
	eventually(t, "a good configuration is in force", func() bool { return !s.weight(batch).Idle })
	d.stop()
	s.restore()
}

// TestTenondGoesOnWhenItsConfigBecomesAPipe checks that tenond does not open a
// pipe. An open would block the loop until a writer comes.
func TestTenondGoesOnWhenItsConfigBecomesAPipe(t *testing.T) {
	s := plantSite(t, generous)
	d := s.tenond()
	s.awaitRoom()
	if err := os.Remove(s.config); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(s.config, 0o600); err != nil {
		t.Fatal(err)
	}
	d.await("is no regular file", 1)
	s.awaitRoom()
	if !s.weight(batch).Idle {
		t.Error("the old configuration is not in force")
	}
	d.stop()
	s.restore()
}

func TestTenondWithABadFirstConfigTouchesNothing(t *testing.T) {
	s := plantSite(t, strings.Replace(generous, "100ms", "7", 1))
	d := s.launch()
	<-d.end
	if d.ProcessState.ExitCode() <= 0 || !strings.Contains(d.said(), "period") {
		t.Errorf("%v\n%s", d.ProcessState, d.said())
	}
	s.checkUntouched("", s.before)
}
