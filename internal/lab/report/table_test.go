package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update makes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update if it should:\n%s", path, diff)
	}
}

// Golden cases: what a reader gets from a good machine, from a noisy one, and
// from the two quick blocks of a first try.
var goldenCases = map[string]func() (Experiment, []Run){
	"quiet": sync.OnceValues(func() (Experiment, []Run) {
		e := syntheticExperiment(12, allModes...)
		return e, syntheticRuns(e, 0.005)
	}),
	"noisy": sync.OnceValues(func() (Experiment, []Run) {
		e := syntheticExperiment(9, allModes...)
		return e, syntheticRuns(e, 0.15)
	}),
	"quick": func() (Experiment, []Run) {
		e := syntheticExperiment(2, Exclusive, Default, Tenon)
		e.Duration = 3 * time.Second
		return e, syntheticRuns(e, 0.05)
	},
	"one-block": func() (Experiment, []Run) {
		e := syntheticExperiment(1, Exclusive, Tenon)
		return e, syntheticRuns(e, 0.05)
	},
	"ladder": sync.OnceValues(syntheticLadder),
	"empty":  func() (Experiment, []Run) { return syntheticExperiment(0, Exclusive, Tenon), nil },
}

func TestTableReadsAsTheGoldenFiles(t *testing.T) {
	for name, invent := range goldenCases {
		var b bytes.Buffer
		if err := WriteTable(&b, Analyse(invent())); err != nil {
			t.Fatal(err)
		}
		checkGolden(t, "synthetic-"+name+".table.txt", b.Bytes())
		for l := range strings.Lines(b.String()) {
			if n := runes(strings.TrimSuffix(l, "\n")); n > tableWidth {
				t.Errorf("%s: line of %d characters, want at most %d:\n%s", name, n, tableWidth, l)
			}
		}
	}
}

// TestTableSaysWhyTheNodesCPUsAreUnknown, and only then.
func TestTableSaysWhyTheNodesCPUsAreUnknown(t *testing.T) {
	for cpus, want := range map[float64]string{0: "lies in a run of 20s", 1.25: "1.25"} {
		e := syntheticExperiment(2, Exclusive, Default)
		e.Kubernetes = &KubernetesSetup{Node: "worker-1"}
		runs := syntheticRuns(e, 0.05)
		for i := range runs {
			runs[i].NodeMetricsCPU = cpus
		}
		var b bytes.Buffer
		if err := WriteTable(&b, Analyse(e, runs)); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		if !strings.Contains(text, want) || strings.Contains(text, "None is known") != (cpus == 0) {
			t.Errorf("%v CPUs: no %q, or a reason too many:\n%s", cpus, want, &b)
		}
	}
}

func TestResultReadsAsTheGoldenFile(t *testing.T) {
	data, err := json.MarshalIndent(Analyse(goldenCases["quick"]()), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "synthetic-quick.result.json", append(data, '\n'))
}
