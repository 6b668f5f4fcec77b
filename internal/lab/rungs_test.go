package lab

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/proc"
	"tenon.sh/tenon/internal/trace"
)

// carrying is a node that carries some rungs.
func carrying(rungs ...node.Rung) func(node.Rung) node.Answer {
	return func(r node.Rung) node.Answer {
		if slices.Contains(rungs, r) {
			return node.Answer{Verdict: node.Yes}
		}
		return node.Answer{Verdict: node.No, Why: "no " + string(r) + " here"}
	}
}

func TestKernelQOSRunsTheRungsThatTheNodeHas(t *testing.T) {
	for name, tt := range map[string]struct {
		carries func(node.Rung) node.Answer
		want    []report.Mode
		skipped []report.Mode
	}{
		"an old kernel": {carrying(node.RungWeight), []report.Mode{report.TenonWeight},
			[]report.Mode{report.TenonIdle, report.TenonSiblings, report.TenonCoreSched, report.TenonSCX, report.TenonVendor}},
		"no SMT, no sched_ext": {carrying(node.RungWeight, node.RungIdle), []report.Mode{report.TenonIdle},
			[]report.Mode{report.TenonWeight, report.TenonSiblings, report.TenonCoreSched, report.TenonSCX, report.TenonVendor}},
		"all but a vendor's": {carrying(node.RungWeight, node.RungIdle, node.RungSiblings, node.RungCoreSched, node.RungSchedExt),
			[]report.Mode{report.TenonIdle, report.TenonSiblings, report.TenonCoreSched, report.TenonSCX},
			[]report.Mode{report.TenonWeight, report.TenonVendor}},
	} {
		t.Run(name, func(t *testing.T) {
			modes, skipped, err := modesHere(nil, tt.carries)
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

func TestANamedRungThatTheNodeLacksIsAnError(t *testing.T) {
	asked := []report.Mode{report.Exclusive, report.TenonSCX}
	_, _, err := modesHere(asked, carrying(node.RungIdle))
	if err == nil || err.Error() != "mode tenon-scx: this node does not carry the rung sched_ext: no sched_ext here" {
		t.Errorf("error %v", err)
	}
	modes, skipped, err := modesHere(asked, carrying(node.RungSchedExt))
	if err != nil || len(skipped) > 0 || !slices.Equal(modes, asked) {
		t.Errorf("%v, %v, %v", modes, skipped, err)
	}
	if _, _, err := modesHere(AllModes, carrying()); err != nil {
		t.Errorf("modes that pin no rung: %v", err)
	}
}

func TestEveryRungHasAMode(t *testing.T) {
	pinned := map[node.Rung]int{}
	for _, m := range report.RungModes {
		tr := traitsOf(m)
		pinned[tr.rung]++
		if !tr.batch || !tr.tenon || tr.alone || tr.burstable {
			t.Errorf("%s: %+v", m, tr)
		}
	}
	for _, r := range node.Rungs {
		if pinned[r] != 1 {
			t.Errorf("rung %s has %d modes", r, pinned[r])
		}
	}
	for _, m := range AllModes {
		if r := traitsOf(m).rung; r != "" {
			t.Errorf("%s pins %s", m, r)
		}
	}
}

func TestKernelQOSEndsInLessThanSevenMinutes(t *testing.T) {
	c, err := Config{ladder: true}.orDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxTime <= 0 || c.MaxTime >= 7*time.Minute || c.Blocks < 6 || len(c.Modes) != 0 {
		t.Errorf("%+v", c)
	}
	for name, c := range map[string]Config{
		"blocks are asked for": {ladder: true, Blocks: 50},
		"until resolved":       {ladder: true, UntilResolved: true},
	} {
		if c, err := c.orDefaults(); err != nil || c.MaxTime != 0 {
			t.Errorf("%s: at most %v, %v", name, c.MaxTime, err)
		}
	}
	if c, err := (Config{}).orDefaults(); err != nil || c.MaxTime != 0 || len(c.Modes) != len(AllModes) {
		t.Errorf("colocation: %+v, %v", c, err)
	}
}

func TestARunOnAnotherRungIsNoRunOfItsMode(t *testing.T) {
	g := &governor{ladder: node.LadderStatus{Rung: node.RungIdle, Why: "sched_ext fell"}}
	if err := g.on(node.RungSchedExt); err == nil || err.Error() != "not isolated by sched_ext but by cpu.idle: sched_ext fell" {
		t.Errorf("error %v", err)
	}
	for _, r := range []node.Rung{"", node.RungIdle} {
		if err := g.on(r); err != nil {
			t.Errorf("asked for %q: %v", r, err)
		}
	}
}

func TestTheRungIsTakenFromTenondsLog(t *testing.T) {
	g := &governor{state: "/run/x"}
	ready := make(chan struct{})
	log := &logLines{each: func(l logLine) { g.observeLog(l, ready) }}
	for _, line := range []string{
		`{"level":"INFO","msg":"isolation on the CPU","rung":"sched_ext","reason":"the configuration asks for sched_ext"}`,
		`{"level":"INFO","msg":"isolation on the CPU","rung":"cpu.idle","reason":"sched_ext fell: stall"}`,
	} {
		if _, err := log.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.on(node.RungSchedExt); err == nil || !strings.Contains(err.Error(), "sched_ext fell: stall") {
		t.Errorf("error %v", err)
	}
}

func TestEmulatorIsToldFromAHypervisor(t *testing.T) {
	for name, tt := range map[string]struct {
		vendor, clocks string
		want           string
	}{
		"QEMU alone":    {"QEMU", "tsc hpet acpi_pm", "qemu"},
		"QEMU with KVM": {"QEMU", "kvm-clock tsc acpi_pm", "kvm"},
		"unknown clock": {"QEMU", "", "kvm"},
		"another one":   {"VMware, Inc.", "tsc acpi_pm", "vmware"},
		"no DMI":        {"", "tsc kvm-clock", "some hypervisor"},
	} {
		t.Run(name, func(t *testing.T) {
			sys := t.TempDir()
			for file, text := range map[string]string{
				"class/dmi/id/sys_vendor": tt.vendor,
				"devices/system/clocksource/clocksource0/available_clocksource": tt.clocks,
			} {
				path := filepath.Join(sys, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := virtualization(proc.FS{Sys: sys}, true); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestSiblingsAmongTheTestedCPUsAreSeen(t *testing.T) {
	cores := node.Topology{CPUs: []node.LogicalCPU{{ID: 0, Core: 0}, {ID: 1, Core: 0}, {ID: 2, Core: 1}, {ID: 3, Core: 1}}}
	for tested, want := range map[string]bool{"0-3": true, "0,1": true, "1,2": false, "0": false} {
		if got := (Placement{Tested: set1(t, tested)}).Siblings(cores); got != want {
			t.Errorf("CPUs %s: %v", tested, got)
		}
	}
}

func TestTracedKeepsTheVerdict(t *testing.T) {
	got := tracedOf(trace.Report{
		From: time.Second, To: 3 * time.Second, LSTime: 500 * ms, BETime: 900 * ms, BesideTime: 40 * ms, BEStarts: 77, BEStartsBesideLS: 7,
		LSWake: trace.Quantiles{Count: 9, P50: 1500 * time.Nanosecond, P90: 4 * time.Microsecond, P99: ms},
	})
	want := &report.Traced{
		Length: 2 * time.Second, LSTime: 500 * ms, BETime: 900 * ms, Beside: 40 * ms, Starts: 7,
		Wakes: 9, WakeP50: 1.5, WakeP90: 4, WakeP99: 1000,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestKernelQOSRunsAndLeavesNothing(t *testing.T) {
	real(t, nginxProgram, ffmpegProgram)
	t.Setenv("TMPDIR", openDir(t))
	c := small(t, report.Exclusive, report.Default, report.TenonIdle)
	var notices strings.Builder
	c.Notices = &notices
	o, err := KernelQOS(t.Context(), c)
	t.Log(notices.String())
	if err != nil {
		if strings.Contains(err.Error(), "does not carry the rung cpu.idle") {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	e, runs, err := report.Load(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if e.Kind != report.KindKernelQOS || len(runs) != 3 {
		t.Errorf("kind %q, %d runs", e.Kind, len(runs))
	}
	for _, r := range runs {
		if r.Traced == nil {
			t.Errorf("%s: no record of the scheduler: %q", r.Mode, r.Warnings)
			continue
		}
		if batch := traitsOf(r.Mode).batch; r.Traced.LSTime <= 0 || r.Traced.Wakes == 0 || batch != (r.Traced.BETime > 0) {
			t.Errorf("%s: %+v", r.Mode, *r.Traced)
		}
		if r.Traced.Beside > 0 && !e.Siblings {
			t.Errorf("%s: beside on CPUs that share no core: %v", r.Mode, r.Traced.Beside)
		}
		if w := strings.Join(r.Writes, "\n"); (r.Mode == report.TenonIdle) != strings.Contains(w, "besteffort cpu.weight") {
			t.Errorf("%s wrote %q", r.Mode, w)
		}
	}
	if left, _ := filepath.Glob("/sys/kernel/tracing/instances/tenon-*"); len(left) > 0 {
		t.Errorf("trace instances are left: %v", left)
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
