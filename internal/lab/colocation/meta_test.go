package colocation

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/report"
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
