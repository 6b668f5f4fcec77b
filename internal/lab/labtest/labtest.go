// Package labtest has what the tests of the experiments share: the child processes
// of the lab, a setting, and the check that an experiment leaves nothing behind.
package labtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Main is the TestMain of a package. It lets the test binary also serve as the
// lab's child process (see Setting).
func Main(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "lab-child" {
		if err := lab.Child(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// RequireReal skips a test if the machine cannot run the experiment. With
// TENON_TEST_STRICT=1 it fails the test instead.
func RequireReal(t *testing.T, needs ...work.Program) {
	t.Helper()
	skip := t.Skipf
	if os.Getenv("TENON_TEST_STRICT") == "1" {
		skip = t.Fatalf
	}
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	for _, p := range needs {
		if _, err := p.Find(); err != nil {
			skip("%v", err)
		}
	}
	if n := runtime.NumCPU(); n < 2 {
		skip("%v", testbed.TooFewCPUs{For: "the experiment", Need: unit.CPUs(2), Have: unit.CPUs(n)})
	}
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		skip("%v", err)
	}
	probe := fmt.Sprintf("tenon-test-probe-%d", os.Getpid())
	if err := errors.Join(tree.Make(probe), tree.Remove(probe)); err != nil {
		skip("cannot make cgroups: %v", err)
	}
}

// Suffices checks the defaults of an experiment: it must have as many blocks as a
// verdict needs, and take at most half an hour.
func Suffices(t *testing.T, name string, blocks int, length time.Duration) {
	t.Helper()
	if text := harness.Decides(blocks, "--blocks"); blocks < harness.LeastBlocks() || strings.Contains(text, "can decide nothing") {
		t.Errorf("%s: %d blocks: %s", name, blocks, text)
	}
	if length > 30*time.Minute {
		t.Errorf("%s takes %v with its defaults", name, length)
	}
}

// Understands checks that tenond accepts the configuration that the lab writes, and
// then has the same policies as the loop that the lab itself runs.
func Understands(t *testing.T, name string, c testbed.TenondConfig) {
	t.Helper()
	text, err := c.Text()
	if err != nil {
		t.Fatal(err)
	}
	got, faults := config.Parse(text)
	if len(faults) > 0 || len(got.Notices) > 0 {
		t.Errorf("%s: faults %v, notices %q in\n%s", name, faults, got.Notices, text)
		return
	}
	if len(got.Rules) != 2 || got.Policy.CPUQOS.Enable != c.Isolate || got.Policy.CPUQOS.Mechanism != c.Mechanism || got.Policy.Suppress.Enable != c.Suppress {
		t.Errorf("%s: %+v", name, got)
	}
	if got.Signals.RunQueueDelay == c.NoDelays || got.Signals.Pressure == c.NoPressure {
		t.Errorf("%s: signals %+v", name, got.Signals)
	}
	for class, shares := range c.Memory.Classes {
		if got.Policy.Memory.Classes[class] != shares {
			t.Errorf("%s: %s gets %+v, want %+v", name, class, got.Policy.Memory.Classes[class], shares)
		}
	}
	for i, r := range c.Rules {
		if has := got.Rules[i]; has.MemoryRequest.Or(0) != r.Request || has.MemoryLimit.Or(0) != r.Limit || has.Objective.RunQueueDelay.Or(0) != r.Objective {
			t.Errorf("%s: rule %+v, want %+v", name, has, r)
		}
	}
}

// Setting returns the setting of a short experiment that has its own root cgroup.
// Steal time does not void a run, because the tests check no measured values.
func Setting(t *testing.T) testbed.Setting {
	return testbed.Setting{
		Seed: 1, Out: filepath.Join(t.TempDir(), "out"), JournalDir: filepath.Join(t.TempDir(), "journal"),
		Root: node.CgroupPath(fmt.Sprintf("tenon-test-%d", os.Getpid())),
		Self: []string{os.Args[0], "lab-child"},
		Once: true, Blocks: 1, StealPercent: 100,
	}
}

// NothingLeft checks that no cgroup, process or directory of an experiment is left.
func NothingLeft(t *testing.T, c testbed.Setting) {
	t.Helper()
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if tree.Exists(string(c.Root)) {
		t.Errorf("cgroup %s is left", c.Root)
	}
	fs := proc.Default()
	pids, err := fs.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		st, err := fs.PIDStat(pid)
		if err == nil && st.PPID == os.Getpid() {
			t.Errorf("process %d (%s) is left", pid, st.Comm)
		}
	}
	if dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "tenon-lab-*")); len(dirs) > 0 {
		t.Errorf("directories are left: %v", dirs)
	}
}

// OpenDir returns a temporary directory that nginx's workers can enter.
func OpenDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tenon-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A Trigger is a writer. When the written text contains Word, it calls Act once.
type Trigger struct {
	Word string
	Act  func()
	once sync.Once
}

func (w *Trigger) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.Word) {
		w.once.Do(w.Act)
	}
	return len(b), nil
}
