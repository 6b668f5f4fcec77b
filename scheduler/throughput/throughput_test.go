package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/stat"
)

// TestEachSchedulerSchedulesTheSamePods runs one round on a small cluster. A
// block fails if a pod that asks for CPUs is bound without them.
func TestEachSchedulerSchedulesTheSamePods(t *testing.T) {
	o := options{nodes: []int{20}, shares: []int{0, 50}, rounds: 1, pods: 40, refusing: 5}
	all, err := compare(t.Context(), o, 20, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(names)*2 {
		t.Errorf("%d blocks", len(all))
	}
	for _, b := range all {
		if b.cpu <= 0 || b.wall <= 0 || b.bytes <= 0 {
			t.Errorf("%+v", b)
		}
	}
	if csv := table(all); strings.Count(csv, "\n") != len(all)+1 {
		t.Error(csv)
	}
	if text := summary(o, all); !strings.Contains(text, "20     50 %") {
		t.Error(text)
	}
}

func TestTheFolderOfTheBlocksIsMade(t *testing.T) {
	out := filepath.Join(t.TempDir(), "new", "folder")
	if err := run(t.Context(), options{nodes: []int{3}, shares: []int{0}, rounds: 1, pods: 2, out: out}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(out, "blocks.csv")); err != nil || len(text) == 0 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// TestARealAPIServerIsMeasured runs a round on the API server that the tests of
// test/cluster build. A block fails if a pod that asks for CPUs has none.
func TestARealAPIServerIsMeasured(t *testing.T) {
	home, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	o := options{nodes: []int{4}, shares: []int{50}, rounds: 1, pods: 20, binaries: filepath.Join(home, "tenon", "cluster", "bin")}
	if _, err := os.Stat(filepath.Join(o.binaries, "kube-apiserver")); err != nil {
		t.Skipf("there is no API server: make cluster-build builds it: %v", err)
	}
	all, err := compare(t.Context(), o, o.nodes[0], rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(realNames) {
		t.Errorf("%d blocks", len(all))
	}
	for _, b := range all {
		if b.wall <= 0 || b.writes != 1 || len(b.binds) != o.pods {
			t.Errorf("%s: %v a pod, %v writes, %d binds: want one write for each of %d pods", b.arm, b.wall, b.writes, len(b.binds), o.pods)
		}
	}
	if text := realSummary(o, all); !strings.Contains(text, "4      50 %") {
		t.Error(text)
	}
}

// TestTheVerdictIsThatOfTheLab compares verdicts on samples with little noise.
// The bounds of the claim are wider than the interval of the mean: from few
// rounds nothing is decided, and a mean without its median decides nothing.
func TestTheVerdictIsThatOfTheLab(t *testing.T) {
	sample := func(n int, of func(i int) float64) stat.Sample {
		s := stat.Sample{}
		for i := range n {
			s[i] = of(i) * (1 + 0.001*float64(i%3))
		}
		return s
	}
	same := func(int) float64 { return 100 }
	for _, c := range []struct {
		name, want    string
		rounds        int
		plugin, equal func(i int) float64 // CPU time of the plugin and of the equal scheduler; that of kube-scheduler is 100
	}{
		{"quiet", "at least 0.95", 30, func(int) float64 { return 102 }, same},
		{"slow", "below 0.95", 30, func(int) float64 { return 120 }, same},
		{"few rounds", "undecided: too few rounds", 3, func(int) float64 { return 102 }, same},
		{"rounds that may have missed a bad state", "undecided", 26, func(int) float64 { return 112 }, same},
		{"slow in each third round", "undecided", 30, func(i int) float64 { return 100 + 30*float64(i%3/2) }, same},
		{"equals that vary", "undecided: equals differ", 30, func(int) float64 { return 102 }, func(i int) float64 { return 80 + 40*float64(i%2) }},
		{"equals that differ", "undecided: equals differ", 30, func(int) float64 { return 102 }, func(int) float64 { return 102 }},
	} {
		stocks := sample(c.rounds, same)
		ratio, equal := stat.Ratio(stocks, sample(c.rounds, c.plugin), rule(c.rounds)), stat.Ratio(stocks, sample(c.rounds, c.equal), rule(c.rounds))
		if got := verdict(ratio, equal); got != c.want {
			t.Errorf("%s: %s, want %s (%+v)", c.name, got, c.want, ratio)
		}
	}
}

func TestWrongFlagsAreErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"-nodes":    {"-nodes", "0"},
		"-shares":   {"-shares", "30,101"},
		"-rounds":   {"-rounds", "0"},
		"-refusing": {"-refusing", "100"},
	} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestTheMemoryOfASchedulerIsMeasured(t *testing.T) {
	if err := memoryOf(t.Context(), options{only: withPlugin, nodes: []int{20}, bound: 100}); err != nil {
		t.Error(err)
	}
}
