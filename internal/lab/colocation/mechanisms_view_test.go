package colocation

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// literalKernelQOS returns an experiment of three blocks. The numbers are
// round, so that the table can be checked by hand.
func literalKernelQOS() (Experiment, []Run) {
	e := inventExperiment(3, report.Exclusive, report.Default, report.TenonIdle, report.TenonSCX)
	e.Kind, e.Command, e.Siblings = KindKernelQOS, []string{"tenon", "lab", "kernel-qos"}, true
	e.TestedCPUs = unit.CPUSetOf(0, 1, 2, 3)
	e.Skipped = []Skipped{{report.TenonVendor, "cpu.bvt_warp_ns does not exist"}}
	var runs []Run
	for block := range 3 {
		slow := 1 + float64(block) // each block is slower than the one before, equally in all modes
		for i, m := range e.Modes {
			factor := []float64{1, 2, 1.1, 1.05}[i]
			r := Run{Run: report.Run{
				Index: len(runs), Block: block, Mode: m, Length: 10 * time.Second, PSICPU: -1,
				Latency:    load.Latency{P50: 200 * slow * factor, P75: 300 * slow * factor, P90: 400 * slow * factor, P99: 1000 * slow * factor, P999: 2000, Max: 3000, Mean: 250},
				CPUPercent: []float64{25, 98, 97, 60}[i], LSCPU: 1, BECPU: float64(i), FramesPerS: 10 * float64(i),
				Timeslices: 1000, DelayPerRun: 2 * factor, RunDelay: time.Duration(2000*factor) * time.Microsecond,
			}, Traced: &Traced{
				Length: time.Second, LSTime: 500 * time.Millisecond,
				Beside: []time.Duration{0, 400, 300, 2}[i] * time.Millisecond, Starts: 100 * i,
				Wakes: 1000, WakeP50: 3, WakeP90: 5 * factor, WakeP99: 20,
			}}
			runs = append(runs, r)
		}
	}
	return e, runs
}

func tableText(t *testing.T, e Experiment, runs []Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := analysis(e, runs).Page().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// syntheticKernelQOS invents an experiment. The machine has siblings, and all
// mechanisms except vendor. None of the values was measured.
func syntheticKernelQOS() (Experiment, []Run) {
	e := inventExperiment(8, report.Exclusive, report.ExclusiveAA, report.Default, report.Burstable, report.TenonIdle, report.TenonSiblings, report.TenonCoreSched, report.TenonSCX)
	e.Kind, e.Command, e.Duration = KindKernelQOS, []string{"tenon", "lab", "kernel-qos"}, 5*time.Second
	e.TestedCPUs, e.ClientCPUs, e.Siblings, e.Machine.SMT = unit.CPUSetOf(0, 1, 2, 3), unit.CPUSetOf(4, 5), true, true
	e.Skipped = []Skipped{
		{report.TenonWeight, "it is what default has"},
		{report.TenonVendor, "this kernel has none of cpu.bvt_warp_ns, cpu.priority and cpu.qos_level"},
	}
	runs := inventedRuns(e, 0.01)
	for i := range runs {
		r := &runs[i]
		share := map[report.Mode]float64{report.Default: 0.8, report.Burstable: 0.9, report.TenonIdle: 0.7, report.TenonSiblings: 0.2, report.TenonCoreSched: 0.001, report.TenonSCX: 0.004}[r.Mode]
		r.Traced = &Traced{
			Length: time.Second, LSTime: 600 * time.Millisecond, BETime: time.Duration(r.BECPU * float64(time.Second)),
			Beside: time.Duration(share * (1 + 0.02*float64(r.Block)) * float64(600*time.Millisecond)), Starts: int(3000 * share),
			Wakes: 4000, WakeP50: r.DelayPerRun, WakeP90: 3 * r.DelayPerRun, WakeP99: 20 * r.DelayPerRun,
		}
		r.CPUPercent = 100 * (r.LSCPU + r.BECPU + r.OtherCPU) / 4
	}
	return e, runs
}

// unwrap joins the lines of a text.
func unwrap(text string) string { return strings.Join(strings.Fields(text), " ") }

// tableRow returns the cells of the row with the given label.
func tableRow(text, label string) string {
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, label); ok {
			return unwrap(rest)
		}
	}
	return ""
}

func TestLadderTableHasThePublishedRows(t *testing.T) {
	e, runs := literalKernelQOS()
	text := tableText(t, e, runs)
	for label, want := range map[string]string{
		"mode":            "exclusive default tenon-idle tenon-scx",
		"RT-P50":          "0.400 0.800 (+100.0 %) 0.440 (+10.0 %) 0.420 (+5.0 %)", // medians; the ratio is the same in each block
		"RT-P75":          "0.600 1.200 (+100.0 %) 0.660 (+10.0 %) 0.630 (+5.0 %)",
		"RT-P90":          "0.800 1.600 (+100.0 %) 0.880 (+10.0 %) 0.840 (+5.0 %)",
		"RT-P99":          "2.000 4.000 (+100.0 %) 2.200 (+10.0 %) 2.100 (+5.0 %)",
		"CPU %":           "25.0 98.0 97.0 60.0",
		"run-queue delay": "2.00 4.00 (+100.0 %) 2.20 (+10.0 %) 2.10 (+5.0 %)",
		"wake-up P90":     "5.0 10.0 5.5 5.2",
		"BE beside LS":    "0.00 % 80.00 % 60.00 % 0.40 %",
	} {
		if got := tableRow(text, label); got != want {
			t.Errorf("%s: %q, want %q", label, got, want)
		}
	}
	for _, want := range []string{"baseline", "control", "cpu.idle", "sched_ext", "vendor kernel (tenon-vendor): cpu.bvt_warp_ns does not exist"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "  95 % interval"); n != 5 {
		t.Errorf("%d rows of intervals, want one for each percentile and one for the delay:\n%s", n, text)
	}
	for l := range strings.Lines(text) {
		if n := textlayout.Columns(strings.TrimSuffix(l, "\n")); n > textlayout.Width {
			t.Errorf("line of %d characters: %s", n, l)
		}
	}
}

func TestLadderTableSaysThatThereAreNoSiblings(t *testing.T) {
	e, runs := literalKernelQOS()
	e.Siblings = false
	text := tableText(t, e, runs)
	if got := tableRow(text, "BE beside LS"); got != strings.TrimSpace(strings.Repeat("no siblings ", 4)) {
		t.Errorf("BE beside LS: %q", got)
	}
	if !strings.Contains(unwrap(text), "the tested CPUs share no core") {
		t.Error("the legend does not explain the cells without a value")
	}
	if v := analyse(e, runs).Modes[report.Default].Traced.Beside; v.Known() {
		t.Errorf("without siblings the share is %v, want no number", v)
	}
}

func TestAllMechanismsFitIntoTables(t *testing.T) {
	e, _ := literalKernelQOS()
	e.Modes = append([]report.Mode{report.Exclusive, report.ExclusiveAA, report.Default, report.Burstable}, report.MechanismModes...)
	seen := map[report.Mode]int{}
	for _, s := range (fullExperiment{experiment: e}).kernelQOSStudy().Tables {
		if report.LabelWidth+report.CellWidth*len(s.Modes) > textlayout.Width {
			t.Errorf("table of %v is too wide", s.Modes)
		}
		for _, m := range s.Modes {
			seen[m]++
		}
	}
	for _, m := range report.MechanismModes {
		if seen[m] != 1 {
			t.Errorf("%s stands in %d tables", m, seen[m])
		}
		if m.Spec().Head == "" {
			t.Errorf("%s has no name", m)
		}
	}
	if seen[report.Default] != 3 || seen[report.Exclusive] != 3 || seen[report.Burstable] != 1 {
		t.Errorf("baseline and control are not in all tables: %v", seen)
	}
}

func TestMechanismsAreJudgedAgainstTheServiceAlone(t *testing.T) {
	e := inventExperiment(32, report.Exclusive, report.ExclusiveAA, report.Default, report.TenonIdle, report.TenonSCX)
	e.Kind, e.Margin = KindKernelQOS, 1.1
	runs := inventedRuns(e, 0.01)
	for i := range runs {
		switch r := &runs[i]; r.Mode {
		case report.Default:
			r.Latency.P99 *= 3
		case report.TenonIdle:
			r.Latency.P99 *= 1.5
		}
	}
	claims := map[string]report.Claim{}
	for _, c := range analyse(e, runs).Claims {
		claims[c.Name] = c
	}
	for name, want := range map[string]stat.Verdict{
		"tenon-idle-as-exclusive-p90":  stat.Met,
		"tenon-idle-as-exclusive-p99":  stat.NotMet,
		"tenon-scx-as-exclusive-p90":   stat.Met,
		"tenon-scx-as-exclusive-p99":   stat.Met,
		"default-or-tenon-scx-p90":     stat.Tie,
		"default-or-tenon-scx-p99":     stat.Differs,
		"default-or-tenon-scx-waiting": stat.Tie,
	} {
		if c := claims[name]; c.Verdict != want {
			t.Errorf("%s: %+v, want %s", name, c, want)
		}
	}
	if len(claims) != 7 {
		t.Errorf("claims %v", claims)
	}
	e.Modes = []report.Mode{report.Exclusive, report.Default, report.TenonIdle, report.TenonSCX}
	runs = inventedRuns(e, 0.01)
	for _, c := range analyse(e, runs).Claims {
		if c.Name == "tenon-scx-as-exclusive-p90" && c.Verdict != stat.Refused {
			t.Errorf("without an A/A control: %+v", c)
		}
	}
}

func TestLadderPageShowsTableAndPlots(t *testing.T) {
	e, runs := literalKernelQOS()
	page := htmlOf(t, e, runs)
	for _, want := range []string{
		"Kernel CPU QoS", "sched_ext</th>", "Mechanisms left out", "BE beside LS",
		`aria-label="Ratio of run-queue delay to exclusive by block"`, `aria-label="Wake-up delay P90 by block"`,
		`aria-label="Share of the service’s CPU time with batch work on the same core"`, "one isolation mechanism, pinned",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, m := range report.MechanismModes {
		if strings.Count(page, "--m-"+string(m)+": #") != 2 {
			t.Errorf("the style sheet has no colours for %s", m)
		}
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "exclusive-warm is exclusive") {
		t.Error("the page shows NaN, or explains a mode that was not run")
	}
}

func TestAnEmulatedMachineIsWarnedOf(t *testing.T) {
	e, runs := literalKernelQOS()
	e.Machine.Emulated = true
	if text := tableText(t, e, runs); !strings.Contains(unwrap(text), "how long requests took means nothing") {
		t.Errorf("no warning:\n%s", text)
	}
	e.Machine.Emulated = false
	if text := tableText(t, e, runs); strings.Contains(text, "emulated") {
		t.Errorf("the table warns of an emulator, but the machine is real:\n%s", text)
	}
}

func TestTracedRunsSurviveTheDisk(t *testing.T) {
	e, runs := literalKernelQOS()
	dir := t.TempDir()
	if err := report.Create(dir, &e); err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if err := report.SaveRun(dir, &r); err != nil {
			t.Fatal(err)
		}
	}
	f, err := report.Build(dir, OpenKernelQOS)
	if err != nil {
		t.Fatal(err)
	}
	r := f.Result().(Result)
	if got := r.Modes[report.Default].Traced; got == nil || got.Beside != 0.8 || r.Experiment.Kind != KindKernelQOS {
		t.Errorf("%+v", r.Modes[report.Default])
	}
}
