package e2e

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// killedVar makes TestNoProcessOutlivesAKilledTest start processes, print them, and wait for
// its end.
const killedVar = "TENON_TEST_KILLED"

// TestNoProcessOutlivesAKilledTest kills a test that runs processes, as go test does after
// its -timeout: no cleanup of the test runs. A process that spins in a cgroup would take
// the CPU from all later tests, until the machine is started again.
func TestNoProcessOutlivesAKilledTest(t *testing.T) {
	if os.Getenv(killedVar) != "" {
		for range 3 {
			fmt.Println("started", start(t, "sleep", "600").Process.Pid)
		}
		// This one has a child, which it ends itself.
		parent := startUntil(t, syscall.SIGTERM, "sh", "-c", `trap 'kill $!; exit' TERM; sleep 600 & wait`)
		var family map[int]string
		eventually(t, "it has a child", func() bool {
			family = descendants(t, parent.Process.Pid)
			// Before the child is sleep, it is a copy of the shell, which would lose the signal.
			return slices.Contains(slices.Collect(maps.Values(family)), "sleep")
		})
		for pid := range family {
			fmt.Println("started", pid)
		}
		time.Sleep(10 * time.Minute)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	killed := exec.Command(self, "-test.run=^TestNoProcessOutlivesAKilledTest$")
	killed.Env = append(os.Environ(), killedVar+"=1", "TMPDIR="+t.TempDir())
	out, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	killed.Stderr = os.Stderr
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	const all = 5
	for lines := bufio.NewScanner(out); len(pids) < all && lines.Scan(); {
		var pid int
		if _, err := fmt.Sscanf(lines.Text(), "started %d", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	t.Cleanup(func() { // if one is left
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	_ = killed.Process.Kill()
	_ = killed.Wait()
	if len(pids) != all {
		t.Fatalf("the test has started %v", pids)
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d ends with its test", pid), func() bool { return zombie(pid) })
	}
}
