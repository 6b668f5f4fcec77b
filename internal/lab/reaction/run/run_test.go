package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/reaction"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// agentBuilt compiles tenond.
func agentBuilt(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tenond")
	if out, err := exec.Command("go", "build", "-o", path, "../../../../cmd/tenond").CombinedOutput(); err != nil {
		t.Fatalf("build tenond: %v\n%s", err, out)
	}
	return path
}

func littleReaction(t *testing.T, modes ...report.Mode) Config {
	t.Helper()
	labtest.RequireReal(t)
	c := Config{
		Setting: labtest.Setting(t), Modes: modes, Steps: 3, Contrast: 1, Step: 100 * time.Millisecond,
		LeastPause: 100 * time.Millisecond, MostPause: 200 * time.Millisecond, lead: 1200 * time.Millisecond, // the first tick that knows rates comes after one period
	}
	c.Agent = agentBuilt(t)
	t.Cleanup(func() { labtest.NothingLeft(t, c.Setting) })
	return c
}

func TestReactionRunsAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := littleReaction(t, report.Events, report.IdleBE)
	var notices strings.Builder
	c.Notices = &notices
	o, err := Run(t.Context(), c)
	t.Log(notices.String())
	if err != nil {
		t.Fatal(err)
	}
	_, steps, err := reaction.Load(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	byMode := map[report.Mode]int{}
	for _, s := range steps {
		byMode[s.Mode]++
		if len(s.Delays)+s.Undone != 50 || s.Quota <= 0 {
			t.Errorf("step %d: %d cycles done, %d cycles not begun, quota %v", s.Index, len(s.Delays), s.Undone, s.Quota)
		}
	}
	if byMode[report.Events] != 3 || byMode[report.IdleBE] != 1 || o.Runs < 2 {
		t.Errorf("steps %v", byMode)
	}
	if _, err := os.Stat(o.Report()); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(testbed.StateHome(), fmt.Sprintf("%s%d-*", testbed.DirPrefix, os.Getpid()))); len(left) > 0 {
		t.Errorf("the state of tenond is left: %v", left)
	}
}

func TestInterruptedReactionKeepsItsFinishedRuns(t *testing.T) {
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := littleReaction(t, report.Events)
	c.Steps, c.Contrast, c.Blocks = 40, 40, 40
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Notices = &labtest.Trigger{Word: "block 2 of", Act: func() { time.AfterFunc(200*time.Millisecond, cancel) }}
	o, err := Run(ctx, c)
	if !errors.Is(err, context.Canceled) || o.Runs != 1 {
		t.Errorf("%d runs, %v", o.Runs, err)
	}
}
