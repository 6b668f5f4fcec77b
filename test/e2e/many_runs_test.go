package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestManyRunsAtOnce starts a hundred commands at the same moment, and 500 with
// TENON_TEST_LONG=1. Each must run and leave no cgroup, and so must a
// latency-sensitive command beside them. A launcher that waits for its turn with
// a fixed patience gives up here.
func TestManyRunsAtOnce(t *testing.T) {
	tree := needRoot(t)
	tenon, state := filepath.Join(programs(t), "tenon"), t.TempDir()
	count := 100
	if os.Getenv("TENON_TEST_LONG") == "1" {
		count = 500
	}
	before := topLevel(t, tree)
	run := func(want int, args ...string) {
		cmd := exec.Command(tenon, append([]string{"--state-dir", state, "run", "--quiet"}, args...)...)
		text, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%v: status %d, want %d (%v): %s", args, got, want, err, text)
		}
	}
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			run(3, "--qos", "BE", "--name", fmt.Sprintf("many-%d-%d", os.Getpid(), i), "--", "sh", "-c", "exit 3")
		})
	}
	for range 5 {
		run(0, "--qos", "LS", "--", "true")
	}
	all.Wait()
	checkNoneLeft(t, before, topLevel(t, tree))
}

// TestNestedRunsAtOnce has eight best-effort commands that start commands
// themselves. The launchers of those are best-effort processes.
func TestNestedRunsAtOnce(t *testing.T) {
	tree := needRoot(t)
	tenon, state := filepath.Join(programs(t), "tenon"), t.TempDir()
	before := topLevel(t, tree)
	inner := fmt.Sprintf("%s --state-dir %s run --quiet --qos BE -- sh -c 'exit 3'; [ $? = 3 ] || exit 1; exit 4", tenon, state)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			cmd := exec.Command(tenon, "--state-dir", state, "run", "--quiet", "--qos", "BE", "--", "sh", "-c", inner)
			text, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != 4 {
				t.Errorf("nested commands: status %d, want 4: %s", got, text)
			}
		})
	}
	all.Wait()
	checkNoneLeft(t, before, topLevel(t, tree))
}

// checkNoneLeft compares the cgroups below the root with those before a test.
func checkNoneLeft(t *testing.T, before, after []string) {
	t.Helper()
	if got, want := strings.Join(after, " "), strings.Join(before, " "); got != want {
		t.Errorf("cgroups afterwards: %s\nbefore: %s", got, want)
	}
}
