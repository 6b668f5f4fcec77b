package colocation

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

func experimentDir(name string) string {
	return filepath.Join("..", "..", "..", "docs", "experiments", name)
}

func TestPublishedExperimentsTogether(t *testing.T) {
	long, short, pods := experimentDir("2026-11-22-colocation-ninety-minutes"), experimentDir("2026-11-21-colocation-two-cpus"), experimentDir("2026-11-22-kernel-qos")
	m := Combine([]string{long, short, pods, "no-such-folder"}, report.Tenon, func(string) error { return nil })
	if len(m.Included) != 2 || len(m.Excluded) != 2 || !strings.Contains(m.Excluded[0], `kind "kernel-qos"`) || !strings.Contains(m.Excluded[1], "no-such-folder") {
		t.Fatalf("included %q, left out %q", m.Included, m.Excluded)
	}
	for _, r := range m.Rows {
		if r.Mode != report.Burstable || r.Measure != report.WaitingTime.Name {
			continue
		}
		// Each of the experiments alone gives a ratio of 15 or more.
		if r.Experiments != 2 || r.Blocks != 58 || !(r.Ratio > 15 && r.Ratio < 25) || !(r.Low < r.Ratio && r.Ratio < r.High) || r.NextHigh.Known() {
			t.Errorf("waiting of burstable: %+v", r)
		}
		return
	}
	t.Error("no row about the waiting of burstable")
}

func TestOneExperimentPredictsNone(t *testing.T) {
	m := Combine([]string{experimentDir("2026-11-21-colocation-rule-corrected")}, report.Default, func(string) error { return nil })
	for _, r := range m.Rows {
		if r.Experiments != 1 || r.NextLow > 0 || r.NextHigh.Known() || math.IsNaN(float64(r.Ratio)) {
			t.Errorf("%+v", r)
		}
	}
	if len(m.Rows) == 0 || !strings.Contains(m.Text(), "1 experiment, random effects") {
		t.Errorf("text:\n%s", m.Text())
	}
}

// TestAnExperimentWithoutTheBaseNamesOthers has one experiment, which did not run the
// base mode. There is no empty table, and the text says which bases would do.
func TestAnExperimentWithoutTheBaseNamesOthers(t *testing.T) {
	dir := experimentDir("2026-11-24-floor-campaign-1")
	m := Combine([]string{dir}, report.ExclusiveWarm, func(string) error { return nil })
	want := dir + ": it has no valid run of mode exclusive-warm; with one of its modes as --base it counts: exclusive, exclusive-aa, default, burstable, tenon"
	if !slices.Equal(m.Excluded, []string{want}) || !strings.HasPrefix(m.Text(), "Left out\n") {
		t.Errorf("left out %q, text:\n%s", m.Excluded, m.Text())
	}
}

func measures(m Meta, mode report.Mode) map[string]MetaRow {
	rows := map[string]MetaRow{}
	for _, r := range m.Rows {
		if r.Mode == mode {
			rows[r.Measure] = r
		}
	}
	return rows
}

// TestLatenciesOfAllRequests combines experiments that recorded the requests
// which a stall of the client delayed. P90 of all requests is less certain than
// P90 without them.
func TestLatenciesOfAllRequests(t *testing.T) {
	all := func(string) error { return nil }
	dirs := []string{experimentDir("2026-11-24-floor-campaign-1"), experimentDir("2026-11-25-floor-campaign-2"), experimentDir("2026-11-25-floor-campaign-3")}
	rows := measures(Combine(dirs, report.Default, all), report.Tenon)
	p90, whole := rows["P90"], rows["P90 of all requests"]
	if whole.Blocks != 60 || math.Abs(float64(whole.Ratio)-1.002) > 0.001 || whole.High < p90.High+0.1 || whole.Low > p90.Low {
		t.Errorf("P90 %+v, of all requests %+v", p90, whole)
	}
	for _, name := range []string{"mean of all requests", "P99 of all requests"} {
		if rows[name].Experiments != 3 {
			t.Errorf("%s: %+v", name, rows[name])
		}
	}
	older := measures(Combine(append(dirs, experimentDir("2026-11-21-colocation-rule-corrected")), report.Default, all), report.Tenon)
	if _, ok := older["P90 of all requests"]; ok || older["P90"].Experiments != 4 {
		t.Errorf("with an experiment that did not record them: %+v", older)
	}
}

// TestUnequalExperimentsAreNamed combines experiments with different services,
// batch work and isolation.
func TestUnequalExperimentsAreNamed(t *testing.T) {
	all := func(string) error { return nil }
	nginx, old, redis := experimentDir("2026-11-24-floor-campaign-1"), experimentDir("2026-11-21-colocation-rule-corrected"), experimentDir("2026-11-24-redis-beside-memory-and-xz")
	if m := Combine([]string{nginx, experimentDir("2026-11-25-floor-campaign-2")}, report.Default, all); len(m.Unequal) > 0 {
		t.Errorf("equal experiments: %q", m.Unequal)
	}
	m := Combine([]string{nginx, old, redis}, report.Default, all)
	want := []string{
		"service: nginx in " + nginx + ", " + old + "; redis in " + redis,
		"load: 30 % of the CPU in " + nginx + ", " + old + "; 30 % of the CPU, redis / in " + redis,
		"batch work: ffmpeg in " + nginx + ", " + old + "; memory and xz in " + redis,
		"isolation by Tenon: weight in " + nginx + ", " + redis + "; cpu.idle in " + old,
	}
	if !slices.Equal(m.Unequal, want) || !strings.Contains(m.Text(), "The experiments differ") {
		t.Errorf("got\n%q\nwant\n%q", m.Unequal, want)
	}
	cluster := experimentDir(filepath.Join("2026-11-27-floor-on-a-cluster", "campaign-1"))
	if m := Combine([]string{nginx, cluster}, report.Default, all); len(m.Unequal) != 1 || !strings.HasPrefix(m.Unequal[0], "place: cgroups of one machine in ") {
		t.Errorf("one machine and a cluster: %q", m.Unequal)
	}
	small, large := Experiment{Experiment: report.Experiment{Header: report.Header{Modes: []report.Mode{report.Burstable}, TestedCPUs: unit.CPUSetOf(0)}}}, Experiment{}
	large.Modes, large.TestedCPUs, large.BatchRequest = small.Modes, unit.CPUSetOf(0, 1), 2000
	if got := differences([]string{"a", "b"}, []Experiment{small, large}); len(got) != 1 || !strings.Contains(got[0], "625 m for each tested CPU in a; 1000 m for each tested CPU in b") {
		t.Errorf("requests: %q", got)
	}
}

func TestTheSameExperimentCountsOnce(t *testing.T) {
	dir := experimentDir("2026-11-24-floor-campaign-1")
	copied := t.TempDir()
	data, err := os.ReadFile(filepath.Join(dir, "raw.tar.zst"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied, "raw.tar.zst"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	all := func(string) error { return nil }
	once, twice := Combine([]string{dir}, report.Default, all), Combine([]string{dir, copied}, report.Default, all)
	if len(twice.Excluded) != 1 || twice.Excluded[0] != copied+": it is the same experiment as "+dir || !slices.Equal(once.Rows, twice.Rows) {
		t.Errorf("left out %q, rows\n%+v\nand once\n%+v", twice.Excluded, twice.Rows, once.Rows)
	}
}
