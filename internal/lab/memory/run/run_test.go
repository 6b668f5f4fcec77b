package run

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/memory"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/work"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// littleMemory returns the configuration of a short experiment. When the test
// ends, it checks that nothing of the experiment is left.
func littleMemory(t *testing.T, modes ...report.Mode) Config {
	t.Helper()
	labtest.RequireReal(t, work.NGINXProgram)
	tree, err := cgroup.Detect("/proc")
	if err != nil || !tree.Has("memory") {
		t.Skipf("no memory controller: %v", err)
	}
	data, err := os.MkdirTemp("/var/tmp", "tenon-test-")
	if err != nil {
		t.Skip(err)
	}
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Setting: labtest.Setting(t), Modes: modes, Duration: time.Second, Set: minSet, Rate: 100,
		Data: data,
	}
	t.Cleanup(func() {
		labtest.NothingLeft(t, c.Setting)
		if err := os.Remove(data); err != nil {
			t.Errorf("files are left in --data: %v", err)
		}
		os.RemoveAll(data)
	})
	return c
}

func TestMemoryRunsAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := littleMemory(t, report.Default, report.Tenond)
	var notices strings.Builder
	c.Notices = &notices
	o, err := Run(t.Context(), c)
	t.Log(notices.String())
	if err != nil {
		if strings.Contains(err.Error(), "keeps files in memory") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	e, runs, err := report.Load[memory.Experiment, memory.Run](o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[report.Mode]memory.Run{}
	for _, r := range runs {
		seen[r.Mode] = r
		if r.Memory.BEBytes == 0 || r.Memory.LSHeld == 0 || len(r.Memory.Readings) == 0 || r.Requests == 0 {
			t.Errorf("%s: %+v", r.Mode, r.Memory)
			continue
		}
		// The two are read one after the other: what one gives up and the other takes meanwhile
		// counts twice.
		if both := r.Memory.LSHeld + r.Memory.BEHeld; both > e.Memory.Parent+e.Memory.Parent/100 {
			t.Errorf("%s: both pods hold %v of memory, the limit is %v", r.Mode, both, e.Memory.Parent)
		}
	}
	if len(seen) != 2 {
		t.Fatalf("modes %v", seen)
	}
	if w := strings.Join(seen[report.Tenond].Writes, "\n"); !strings.Contains(w, "pod-hog memory") {
		t.Errorf("tenond wrote %q", w)
	}
	if len(seen[report.Default].Writes) > 0 {
		t.Errorf("default wrote %q", seen[report.Default].Writes)
	}
	if _, err := os.Stat(o.Report()); err != nil {
		t.Error(err)
	}
}

func TestMemoryOfInterruptedExperimentIsGivenBack(t *testing.T) {
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := littleMemory(t, report.Default)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Notices = &labtest.Trigger{Word: "run 1", Act: func() { time.AfterFunc(300*time.Millisecond, cancel) }}
	if _, err := Run(ctx, c); err == nil || !strings.Contains(err.Error(), "keeps files in memory") && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestFilesThatStayInMemoryAreRefused(t *testing.T) {
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := littleMemory(t, report.Default)
	shm, err := os.MkdirTemp("/dev/shm", "tenon-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	c.Data = shm
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "cannot enter "+shm) {
		t.Errorf("a directory that nginx cannot enter: error %v", err)
	}
	if err := os.Chmod(shm, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "keeps files in memory") {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(shm); len(left) > 0 {
		t.Errorf("left in --data: %v", left)
	}
}
