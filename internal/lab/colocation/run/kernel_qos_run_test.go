package run

import (
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/work"
)

func TestKernelQOSRunsAndLeavesNothing(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t, work.NGINXProgram, work.FFmpegProgram)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := smallExperiment(t, report.Exclusive, report.Default, report.TenonIdle)
	var notices strings.Builder
	c.Notices = &notices
	o, err := KernelQOS(t.Context(), c)
	t.Log(notices.String())
	if err != nil {
		if strings.Contains(err.Error(), "does not support the isolation mechanism cpu.idle") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if e.Kind != colocation.KindKernelQOS || len(runs) != 3 {
		t.Errorf("kind %q, %d runs", e.Kind, len(runs))
	}
	for _, r := range runs {
		if r.Traced == nil {
			t.Errorf("%s: no record of the scheduler: %q", r.Mode, r.Warnings)
			continue
		}
		if batch := r.Mode.Spec().Batch; r.Traced.LSTime <= 0 || r.Traced.Wakes == 0 || batch != (r.Traced.BETime > 0) {
			t.Errorf("%s: %+v", r.Mode, *r.Traced)
		}
		if r.Traced.Beside > 0 && !e.Siblings {
			t.Errorf("%s: the CPUs share no core, but BE ran beside LS for %v", r.Mode, r.Traced.Beside)
		}
		if w := strings.Join(r.Writes, "\n"); (r.Mode == report.TenonIdle) != strings.Contains(w, "besteffort cpu.weight") {
			t.Errorf("%s wrote %q", r.Mode, w)
		}
	}
	if left, _ := filepath.Glob("/sys/kernel/tracing/instances/tenon-*"); len(left) > 0 {
		t.Errorf("trace instances are left: %v", left)
	}
}
