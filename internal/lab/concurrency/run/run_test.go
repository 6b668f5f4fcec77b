package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// shortExperiment returns the configuration of a short experiment. When the
// test ends, it checks that nothing of the experiment is left.
func shortExperiment(t *testing.T, needs ...work.Program) Config {
	t.Helper()
	labtest.RequireReal(t, needs...)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := Config{Setting: labtest.Setting(t), Window: 400 * time.Millisecond, Warmup: 100 * time.Millisecond, ForeignPercent: 100}
	t.Cleanup(func() { labtest.NothingLeft(t, c.Setting) })
	return c
}

// runStrategies runs the experiment and returns its rows.
func runStrategies(t *testing.T, c Config) map[Strategy][]jobs.Job {
	t.Helper()
	var notices strings.Builder
	c.Notices = &notices
	o, err := Run(t.Context(), c)
	t.Log(notices.String())
	if err != nil {
		t.Fatal(err)
	}
	_, all, err := concurrency.Load(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(o.Report()); err != nil {
		t.Error(err)
	}
	rows := map[Strategy][]jobs.Job{}
	for _, j := range all {
		if j.Extra.Void != "" {
			t.Errorf("job %d of %s is void: %s", j.Index, j.Extra.Strategy, j.Extra.Void)
		}
		rows[Strategy(j.Extra.Strategy)] = append(rows[Strategy(j.Extra.Strategy)], j)
	}
	return rows
}

// TestTranscodesAreCountedAndLeaveNothing runs whole transcodes. A quota must
// bound the CPU time, and a job on one CPU must never change its CPU.
func TestTranscodesAreCountedAndLeaveNothing(t *testing.T) {
	c := shortExperiment(t, work.FFmpegProgram)
	c.Strategies, c.Jobs, c.Limits, c.Work = []Strategy{Quota, PinnedSlices, Tenon, Unbounded}, []int{1}, []unit.MilliCPU{0, 500}, 200*time.Millisecond
	rows := runStrategies(t, c)
	for _, s := range []Strategy{Quota, PinnedSlices, Tenon, Unbounded, Control} {
		if len(rows[s]) == 0 {
			t.Fatalf("%s: %d rows", s, len(rows[s]))
		}
		j := rows[s][0]
		if j.Extra.Work.Or(0) <= 0 || j.Extra.CPUSeconds.Or(0) <= 0 {
			t.Errorf("%s: %+v", s, j.Extra)
		}
	}
	if j := rows[Quota][0]; j.Extra.Periods.Or(0) == 0 || j.Extra.CPUSeconds.Or(9) > 0.5*j.Duration().Seconds()+0.06 {
		t.Errorf("quota of half a CPU: %v CPU-s in %v, %v periods", j.Extra.CPUSeconds.Or(0), j.Duration(), j.Extra.Periods.Or(0))
	}
	if j := rows[PinnedSlices][0]; j.Extra.Slice.Len() != 1 || j.Extra.Migrations.Or(0) > 0 || j.Extra.ThrottledPeriods.Or(1) != 0 {
		t.Errorf("a job pinned to CPUs %v changed its CPU %v times, and was throttled %v times", j.Extra.Slice, j.Extra.Migrations.Or(-1), j.Extra.ThrottledPeriods.Or(-1))
	}
}

// TestEndlessTranscodesAreCountedByFrames measures a part of a job.
func TestEndlessTranscodesAreCountedByFrames(t *testing.T) {
	inTurn(t)
	c := shortExperiment(t, work.FFmpegProgram)
	c.Strategies, c.Jobs, c.Limits, c.Work, c.Fill = []Strategy{Unbounded}, []int{2}, []unit.MilliCPU{0}, 200*time.Millisecond, Window
	rows := runStrategies(t, c)[Unbounded]
	if len(rows) != 3 { // two jobs, and the reference
		t.Fatalf("%d rows", len(rows))
	}
	for _, j := range rows {
		if j.Extra.Work.Or(0) <= 0 || j.Extra.JobWork.Or(0) <= 0 || j.Duration() < c.Window {
			t.Errorf("%+v", j)
		}
	}
}

// TestOwnJobsRunToTheirEnd runs a command of the user. With --fill steady, a
// job must start when another ends. With exclusive CPUs, jobs that find no free CPUs
// must wait.
func TestOwnJobsRunToTheirEnd(t *testing.T) {
	inTurn(t)
	c := shortExperiment(t)
	done := filepath.Join(t.TempDir(), "done")
	c.Argv = []string{"/bin/sh", "-c", `i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo "$TENON_JOB $TENON_THREADS" >> ` + done}
	c.Strategies, c.Jobs, c.Limits, c.Threads = []Strategy{Quota, Static}, []int{2, 3}, []unit.MilliCPU{1000}, []int{2}
	c.CPUs = unit.CPUSetOf(0)
	c.Limits = []unit.MilliCPU{1000}
	c.Jobs = []int{1, 2}
	rows := runStrategies(t, c)
	if n := len(rows[Static]); n < 3 {
		t.Errorf("%d rows of static, want one of one job and two of two at least", n)
	}
	waited := 0.0
	for _, j := range rows[Static] {
		if j.Concurrency == 2 {
			waited = max(waited, j.Extra.QueueSeconds.Or(0))
		}
	}
	if waited <= 0.001 {
		t.Errorf("of two jobs for one CPU, none waited: %v s", waited)
	}
	text, err := os.ReadFile(done)
	if err != nil || !strings.Contains(string(text), "1 2\n") {
		t.Errorf("the jobs wrote %q (%v), want their number and their threads", text, err)
	}
}

// TestAPoolHasTheLimitAsItsQuota runs strategy static-burst, although the pool
// may have all CPUs of this machine. Tenon's loop must write the quota and the
// pool before the jobs begin.
func TestAPoolHasTheLimitAsItsQuota(t *testing.T) {
	inTurn(t)
	c := shortExperiment(t)
	c.Argv = []string{"/bin/sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"}
	c, err := c.OrDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := enterMachine(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	b := s.(*machine)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	const limit = unit.MilliCPU(300)
	homes := testbed.Homes(b.Topology, b.Place.Tested, 2, limit)
	r, err := b.measure(t.Context(), Cell{Strategy: StaticBurst, Jobs: 2, Limit: limit}, 1, 1)
	if err != nil || len(r.Rows) < 2 || len(r.Void) > 0 {
		t.Fatalf("%d rows, void %q: %v", len(r.Rows), r.Void, err)
	}
	for _, j := range r.Rows {
		// A job may use the whole quota of the period in which it begins.
		most := limit.Cores()*(j.Duration()+node.DefaultPeriod).Seconds() + 0.02
		if used := j.Extra.CPUSeconds.Or(9); j.Extra.ThrottledPeriods.Or(0) == 0 || used > most {
			t.Errorf("job %d used %.2f CPU-s in %v, want %.2f at most; it was throttled in %d periods", j.Index, used, j.Duration(), most, j.Extra.ThrottledPeriods.Or(0))
		}
		if j.Extra.Slice != homes[j.Index] {
			t.Errorf("job %d ran on CPUs %v, want its pool %v", j.Index, j.Extra.Slice, homes[j.Index])
		}
	}
}

func TestAJobThatFailsIsNamed(t *testing.T) {
	c := shortExperiment(t)
	c.Argv = []string{"/bin/sh", "-c", "echo no such film >&2; exit 3"}
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "a job alone failed") || !strings.Contains(err.Error(), "no such film") {
		t.Errorf("error %v", err)
	}
}

// TestAJobThatFailsInTheWarmUpVoidsItsRun uses a job that succeeds when it runs
// alone. It fails in the warm-up, before jobs count. The run must be void.
func TestAJobThatFailsInTheWarmUpVoidsItsRun(t *testing.T) {
	c := shortExperiment(t)
	c.Argv = []string{"/bin/sh", "-c", `[ -e "$0" ] && { echo it is full >&2; exit 3; }; : > "$0"`, filepath.Join(t.TempDir(), "calibrated")}
	c.Strategies, c.Jobs, c.Limits, c.Blocks = []Strategy{Unbounded}, []int{1}, []unit.MilliCPU{0}, 1
	c.Warmup = 2 * time.Second
	o, err := Run(t.Context(), c)
	if o.Dir == "" {
		t.Fatal(err)
	}
	_, all, err := concurrency.Load(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("nothing says that the runs failed")
	}
	for _, j := range all {
		if !strings.Contains(j.Extra.Void, "it is full") || !strings.Contains(j.Extra.Void, "only 0 of 1 jobs ended in the measured part") {
			t.Errorf("run %d: void %q", j.Extra.Run, j.Extra.Void)
		}
	}
}

func TestInterruptedJobsAreEnded(t *testing.T) {
	inTurn(t)
	c := shortExperiment(t)
	c.Argv, c.Fill, c.Blocks = []string{"/bin/sh", "-c", `[ -e "$0" ] && exec sleep 60; : > "$0"`, filepath.Join(t.TempDir(), "calibrated")}, Wave, 1
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := Run(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
