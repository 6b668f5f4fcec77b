package colocation

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// inventExperiment and inventedRuns return data of package synthetic, as
// records of this package.
func inventExperiment(blocks int, modes ...report.Mode) Experiment {
	return Experiment{Experiment: synthetic.Experiment(blocks, modes...)}
}

func inventedRuns(e Experiment, noise float64) []Run {
	var runs []Run
	for _, r := range synthetic.Runs(e.Experiment, noise) {
		runs = append(runs, Run{Run: r})
	}
	return runs
}

// analysis analyses an experiment according to its kind.
func analysis(e Experiment, runs []Run) report.Analysis {
	if e.Kind == KindKernelQOS {
		return AnalyseKernelQOS(e, runs)
	}
	return Analyse(e, runs)
}

// analyse returns the result.json of an analysis.
func analyse(e Experiment, runs []Run) Result {
	return analysis(e, runs).Result().(Result)
}

// goldenCases are the experiments of the golden files: one on a quiet machine,
// one on a noisy machine, and one with two short blocks, as in a first try.
var goldenCases = map[string]func() (Experiment, []Run){
	"quiet": sync.OnceValues(func() (Experiment, []Run) {
		e := inventExperiment(32, synthetic.AllModes...)
		e.Looks, e.Ended = report.LooksOf(32), report.EndPlanned
		return e, inventedRuns(e, 0.005)
	}),
	"noisy": sync.OnceValues(func() (Experiment, []Run) {
		e := inventExperiment(9, synthetic.AllModes...)
		return e, inventedRuns(e, 0.15)
	}),
	"quick": func() (Experiment, []Run) {
		e := inventExperiment(2, report.Exclusive, report.Default, report.Tenon)
		e.Duration = 3 * time.Second
		return e, inventedRuns(e, 0.05)
	},
	"one-block": func() (Experiment, []Run) {
		e := inventExperiment(1, report.Exclusive, report.Tenon)
		return e, inventedRuns(e, 0.05)
	},
	"kernel-qos": sync.OnceValues(syntheticKernelQOS),
	"empty":      func() (Experiment, []Run) { return inventExperiment(0, report.Exclusive, report.Tenon), nil },
}

func TestTableReadsAsTheGoldenFiles(t *testing.T) {
	for name, invent := range goldenCases {
		var b bytes.Buffer
		if err := analysis(invent()).Page().WriteText(&b); err != nil {
			t.Fatal(err)
		}
		synthetic.CheckGolden(t, "synthetic-"+name+".table.txt", b.Bytes())
		for l := range strings.Lines(b.String()) {
			if n := textlayout.Columns(strings.TrimSuffix(l, "\n")); n > textlayout.Width {
				t.Errorf("%s: line of %d characters, want at most %d:\n%s", name, n, textlayout.Width, l)
			}
		}
	}
}

// TestTableSaysWhyTheNodesCPUsAreUnknown checks that the table gives a reason
// if the CPU use of the node is unknown, and only then.
func TestTableSaysWhyTheNodesCPUsAreUnknown(t *testing.T) {
	for cpus, want := range map[float64]string{0: "lie in a run of 20s", 1.25: "1.25"} {
		e := inventExperiment(2, report.Exclusive, report.Default)
		e.Kubernetes = &KubernetesSetup{Node: "worker-1"}
		runs := inventedRuns(e, 0.05)
		for i := range runs {
			runs[i].NodeMetricsCPU = cpus
		}
		var b bytes.Buffer
		if err := analysis(e, runs).Page().WriteText(&b); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		if !strings.Contains(text, want) || strings.Contains(text, "None is known") != (cpus == 0) {
			t.Errorf("%v CPUs: the table lacks %q, or gives a reason for a known value:\n%s", cpus, want, &b)
		}
	}
}

func TestResultReadsAsTheGoldenFile(t *testing.T) {
	data, err := json.MarshalIndent(analyse(goldenCases["quick"]()), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	synthetic.CheckGolden(t, "synthetic-quick.result.json", append(data, '\n'))
}

// TestEachModeStandsInATable checks that the report shows every mode that ran. The A/A
// control has a section of its own.
func TestEachModeStandsInATable(t *testing.T) {
	others := []report.Mode{report.SLOAware, report.SLOAwareQuota, report.ExclusiveAwake, report.TenonNoSlices}
	for _, m := range slices.Concat(synthetic.AllModes, others, report.SessionModes, report.MechanismModes) {
		e := inventExperiment(2, report.Exclusive, report.Default, m)
		is := func(s report.Section) bool { return slices.Contains(s.Modes, m) }
		if m != report.ExclusiveAA && !slices.ContainsFunc(tablesOf(e), is) {
			t.Errorf("%s stands in no table", m)
		}
	}
	for title, modes := range map[string][]report.Mode{
		"At equal utilisation": {report.Exclusive, report.Default65, report.SLOAware},
		"With CPU suppress":    {report.Exclusive, report.Default, report.SLOAware},
	} {
		if got := tablesOf(inventExperiment(2, modes...))[0].Title; got != title {
			t.Errorf("the table of %v is %q, want %q", modes, got, title)
		}
	}
}
