package run

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/kernel/schedtrace"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
)

// supporting returns the answers of a node that supports only the given
// isolation mechanisms.
func supporting(mechanisms ...node.Mechanism) func(node.Mechanism) node.Answer {
	return func(r node.Mechanism) node.Answer {
		if slices.Contains(mechanisms, r) {
			return node.Answer{Verdict: node.Yes}
		}
		return node.Answer{Verdict: node.No, Why: "no " + string(r) + " here"}
	}
}

func TestKernelQOSRunsTheMechanismsThatTheNodeHas(t *testing.T) {
	without := func(modes ...report.Mode) []report.Mode {
		return slices.DeleteFunc(slices.Clone(report.MechanismModes), func(m report.Mode) bool { return slices.Contains(modes, m) })
	}
	for name, tt := range map[string]struct {
		carries func(node.Mechanism) node.Answer
		want    []report.Mode
		skipped []report.Mode
	}{
		"an old kernel":        {supporting(node.MechanismWeight), []report.Mode{report.TenonWeight}, without(report.TenonWeight)},
		"no SMT, no sched_ext": {supporting(node.MechanismWeight, node.MechanismIdle), []report.Mode{report.TenonIdle}, without(report.TenonIdle)},
		"all but a vendor's": {supporting(node.Mechanisms[1:]...), without(report.TenonWeight, report.TenonVendor),
			[]report.Mode{report.TenonWeight, report.TenonVendor}},
	} {
		t.Run(name, func(t *testing.T) {
			modes, skipped, err := modesHere(nil, false, tt.carries)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append(slices.Clone(controls), tt.want...), modes); diff != "" {
				t.Errorf("modes (-want +got):\n%s", diff)
			}
			var left []report.Mode
			for _, s := range skipped {
				left = append(left, s.Mode)
				if s.Why == "" {
					t.Errorf("%s is skipped without a reason", s.Mode)
				}
			}
			if diff := cmp.Diff(tt.skipped, left); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
		})
	}
}

func TestANamedMechanismThatTheNodeLacksIsAnError(t *testing.T) {
	asked := []report.Mode{report.Exclusive, report.TenonSCX}
	_, _, err := modesHere(asked, false, supporting(node.MechanismIdle))
	if err == nil || err.Error() != "mode tenon-scx: this node does not support the isolation mechanism sched_ext: no sched_ext here" {
		t.Errorf("error %v", err)
	}
	modes, skipped, err := modesHere(asked, false, supporting(node.MechanismSchedExt))
	if err != nil || len(skipped) > 0 || !slices.Equal(modes, asked) {
		t.Errorf("%v, %v, %v", modes, skipped, err)
	}
	if _, _, err := modesHere(AllModes, false, supporting()); err != nil {
		t.Errorf("modes that pin no mechanism: %v", err)
	}
}

func TestEveryMechanismHasAMode(t *testing.T) {
	pinned := map[node.Mechanism]int{}
	for _, m := range report.MechanismModes {
		tr := m.Spec()
		pinned[tr.Mechanism]++
		if !tr.Batch || !tr.Tenon || tr.Alone || tr.Eighths > 0 {
			t.Errorf("%s: %+v", m, tr)
		}
	}
	for _, r := range node.Mechanisms {
		if pinned[r] != 1 {
			t.Errorf("mechanism %s has %d modes", r, pinned[r])
		}
	}
	for _, m := range AllModes {
		if r := m.Spec().Mechanism; r != "" {
			t.Errorf("%s pins %s", m, r)
		}
	}
}

func TestDefaultsSufficeForAVerdict(t *testing.T) {
	c, err1 := Config{Design: colocation.DesignBlocks}.WithDefaults()
	qos, err2 := Config{kernelQOS: true}.WithDefaults()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	labtest.Suffices(t, "colocation", c.Blocks, time.Duration(c.Blocks*len(c.Modes))*(c.Duration+c.Warmup()+2*time.Second))
	labtest.Suffices(t, "kernel-qos", qos.Blocks, qos.MaxTime)
}

func TestKernelQOSEndsInLessThanHalfAnHour(t *testing.T) {
	c, err := Config{kernelQOS: true}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxTime <= 0 || c.MaxTime >= 30*time.Minute || c.Blocks < harness.LeastBlocks() || len(c.Modes) != 0 {
		t.Errorf("%+v", c)
	}
	for name, c := range map[string]Config{
		"blocks are asked for": {kernelQOS: true, Setting: testbed.Setting{Blocks: 50}},
		"until resolved":       {kernelQOS: true, UntilResolved: true},
	} {
		if c, err := c.WithDefaults(); err != nil || c.MaxTime != 0 {
			t.Errorf("%s: at most %v, %v", name, c.MaxTime, err)
		}
	}
	if c, err := (Config{Design: colocation.DesignBlocks}).WithDefaults(); err != nil || c.MaxTime != 0 || len(c.Modes) != len(AllModes) {
		t.Errorf("colocation: %+v, %v", c, err)
	}
}

func TestTracedKeepsTheVerdict(t *testing.T) {
	got := tracedOf(schedtrace.Report{
		From: time.Second, To: 3 * time.Second, LSTime: 500 * time.Millisecond, BETime: 900 * time.Millisecond, BesideTime: 40 * time.Millisecond, BEStarts: 77, BEStartsBesideLS: 7,
		LSWake: schedtrace.Quantiles{Count: 9, P50: 1500 * time.Nanosecond, P90: 4 * time.Microsecond, P99: time.Millisecond},
	})
	want := &colocation.Traced{
		Length: 2 * time.Second, LSTime: 500 * time.Millisecond, BETime: 900 * time.Millisecond, Beside: 40 * time.Millisecond, Starts: 7,
		Wakes: 9, WakeP50: 1.5, WakeP90: 4, WakeP99: 1000,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestKilledLabsLeaveNoTraceInstance(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"tenon-1", "tenon-999999999", "other-999999999"} {
		if err := os.MkdirAll(filepath.Join(root, "instances", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sweepTraces(root)
	left, err := filepath.Glob(filepath.Join(root, "instances", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if diff := cmp.Diff([]string{"other-999999999", "tenon-1"}, left); diff != "" {
		t.Error(diff)
	}
}
