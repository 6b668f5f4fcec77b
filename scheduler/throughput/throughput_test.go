package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	all, err := compareReal(t.Context(), o, rand.New(rand.NewPCG(1, 2)))
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

func TestTheVerdictNeedsEqualsThatAreEqual(t *testing.T) {
	sample := func(of time.Duration, n int) stat.Sample {
		s := stat.Sample{}
		for i := range n {
			s[i] = float64(of) * (1 + 0.001*float64(i%3))
		}
		return s
	}
	ratio := func(a, b time.Duration) stat.Estimate {
		return stat.Ratio(sample(a, 12), sample(b, 12), rule(12))
	}
	for want, e := range map[string][2]stat.Estimate{
		"at least 0.95":            {ratio(100, 102), ratio(100, 100)},
		"below 0.95":               {ratio(100, 120), ratio(100, 100)},
		"undecided: equals differ": {ratio(100, 102), stat.Ratio(stat.Sample{0: 1, 1: 2, 2: 1}, stat.Sample{0: 2, 1: 1, 2: 1}, rule(3))},
	} {
		if got := verdict(e[0], e[1]); got != want {
			t.Errorf("%s, want %s (%+v)", got, want, e)
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
