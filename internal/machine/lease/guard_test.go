package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
)

// TestMain runs the test binary as a watchdog if a test starts it as one.
func TestMain(m *testing.M) {
	dir := os.Getenv("LEASE_WATCHDOG_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	refused := fmt.Append(nil, Steady())
	err := os.WriteFile(filepath.Join(dir, "refused"), refused, 0o644)
	if watchErr := Watch(context.Background(), Options{Dir: dir, Boot: boot}); !errors.Is(watchErr, ErrHeld) {
		err = errors.Join(err, watchErr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func watchdogCommand(dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LEASE_WATCHDOG_DIR="+dir)
	return cmd
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}

// startGuarded starts a watchdog process for a lease. It renews this lease
// until the test ends.
func startGuarded(t *testing.T) (l *Lease, dir string, pid int) {
	t.Helper()
	dir = t.TempDir()
	l = take(t, dir, agent, monotonic)
	do(t, l.Announce(time.Minute))
	t.Cleanup(func() { do(t, Disarm(context.Background(), dir)) })
	started, err := Guard(dir, watchdogCommand(dir))
	if do(t, err); !started {
		t.Fatal("no watchdog was started")
	}
	eventually(t, "the lease is guarded", func() (ok bool) {
		pid, ok = IsGuarded(dir)
		return ok && pid != 0
	})
	return l, dir, pid
}

func TestGuardStartsOneWatchdogThatOutlivesItsParent(t *testing.T) {
	l, dir, pid := startGuarded(t)
	if started, err := Guard(dir, watchdogCommand(dir)); started || err != nil {
		t.Errorf("a second one: %v, %v", started, err)
	}
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("process group %d, %v; want its own, %d", group, err, pid)
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || cwd != "/" {
		t.Errorf("its working directory is %s, %v", cwd, err)
	}
	do(t, l.Drop())
	eventually(t, "the watchdog has ended and was waited for", func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	})
	if _, err := Guard(dir, exec.Command("/no/such/program")); err == nil {
		t.Error("a program that does not exist was started")
	}
}

// TestSteadyDoesWhatItDoesNotSayWasRefused checks each preparation: either it
// has an effect, or the error names it. In a container or for an unprivileged
// user, the kernel may refuse any of them.
func TestSteadyDoesWhatItDoesNotSayWasRefused(t *testing.T) {
	_, dir, pid := startGuarded(t)
	refused, err := os.ReadFile(filepath.Join(dir, "refused"))
	do(t, err)
	t.Logf("refused: %s", refused)
	of := func(file string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		do(t, err)
		return strings.TrimSpace(string(text))
	}
	done := map[string]bool{"OOM killer": of("oom_score_adj") == "-1000", "real-time priority": true}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	do(t, err)
	for _, e := range threads {
		tid, err := strconv.Atoi(e.Name())
		do(t, err)
		attr, err := task.Attr(tid)
		if errors.Is(err, task.ErrGone) {
			continue
		}
		do(t, err)
		if attr.Policy != task.FIFO {
			done["real-time priority"] = false
		}
	}
	for line := range strings.Lines(of("status")) {
		switch name, size, _ := strings.Cut(line, ":"); name {
		case "VmLck":
			done["lock the memory"] = strings.TrimSpace(size) != "0 kB"
		case "RssAnon", "RssFile":
			t.Log(strings.TrimSpace(line))
		}
	}
	for what, is := range done {
		if said := strings.Contains(string(refused), what); said == is {
			t.Errorf("%s: done %v, refused according to the error %v", what, is, said)
		}
	}
}
