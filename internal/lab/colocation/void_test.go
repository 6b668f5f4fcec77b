package colocation

import (
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
	"tenon.sh/tenon/internal/lab/stat"
)

// withVoid makes a first try that is void, in each of the given modes and in so
// many of the blocks. The run without a fault is its repetition.
func withVoid(runs []Run, blocks int, reason string, spoil func(*Run), modes ...report.Mode) []Run {
	var all []Run
	for _, r := range runs {
		if r.Block < blocks && slices.Contains(modes, r.Mode) {
			bad := r
			bad.Void = []string{reason}
			spoil(&bad)
			all = append(all, bad)
		}
		all = append(all, r)
	}
	for i := range all {
		all[i].Index = i + 1
	}
	return all
}

const overloaded = "only 97.0 % of the offered rate was answered, less than 99 %: 970 of 1000 requests per second; the service is overloaded at this rate"

// TestAFailureOfTheServiceCannotBeRepeatedAway lets the service fail in six first
// tries of a mode. The repetitions are good, so the numbers of all modes are equal.
func TestAFailureOfTheServiceCannotBeRepeatedAway(t *testing.T) {
	e := inventExperiment(30, synthetic.AllModes...)
	e.Looks, e.Ended = report.LooksOf(30), report.EndPlanned
	equal := plainRuns(e, func(r *Run) { scaleDelay(r, report.Burstable, 70) })
	for _, c := range []struct {
		mode     report.Mode
		name     string
		verdict  stat.Verdict
		mentions bool
	}{
		{report.Tenon, "tenon-p90", stat.Refused, true},
		{report.Tenon, "tenon-p99", stat.Refused, true},
		{report.Tenon, "tenon-waiting", stat.Refused, true},
		{report.Tenon, "tenon-cpu", stat.Refused, true},
		{report.Tenon, "burstable-waiting", stat.Refused, true},
		{report.Tenon, "default-or-tenon-p90", stat.Refused, true},
		{report.Tenon, "tenon-65-p90", stat.Met, false},
		// The failures of a mode to which Tenon is compared do not speak against
		// Tenon, but a tie with it would be a verdict in its favour.
		{report.Burstable, "burstable-waiting", stat.Met, true},
		{report.Default, "default-or-tenon-p90", stat.Refused, true},
		{report.Default, "tenon-p90", stat.Met, false},
		// A service that fails alone has too high a load.
		{report.Exclusive, "tenon-p90", stat.Met, false},
	} {
		r := analyse(e, withVoid(equal, 6, overloaded, func(*Run) {}, c.mode))
		got := claimOf(t, r.Claims, c.name)
		text := "In 6 of 36 runs of " + string(c.mode) + " the service failed requests or answered too few of them."
		if got.Verdict != c.verdict || strings.Contains(got.Explanation, text) != c.mentions || !got.Final {
			t.Errorf("%s fails: %s is %s (final: %v), want %s: %s", c.mode, c.name, got.Verdict, got.Final, c.verdict, got.Explanation)
		}
		warned := strings.Contains(strings.Join(r.Warnings, "\n"), "in 6 of 36 runs of "+string(c.mode)+" the service failed")
		if warned != (c.mode != report.Exclusive) || (r.Modes[c.mode].Failed == 6) != warned {
			t.Errorf("%s fails: %d failed runs, warnings %q", c.mode, r.Modes[c.mode].Failed, r.Warnings)
		}
	}
}

func TestAWorseModeMayFail(t *testing.T) {
	e := inventExperiment(30, synthetic.AllModes...)
	runs := plainRuns(e, func(r *Run) { scaleP99(r, report.Default, 1.4) })
	for mode, want := range map[report.Mode]stat.Verdict{report.Default: stat.Differs, report.Tenon: stat.Refused} {
		r := analyse(e, withVoid(runs, 2, overloaded, func(*Run) {}, mode))
		if got := claimOf(t, r.Claims, "default-or-tenon-p99"); got.Verdict != want {
			t.Errorf("%s, the service fails in mode %s: %s, want %s", got.Explanation, mode, got.Verdict, want)
		}
	}
}

// TestAVerdictMustNotRestOnASelection makes steal void first tries. If it hits
// the modes unequally, a verdict stands only if the first tries give it, too.
func TestAVerdictMustNotRestOnASelection(t *testing.T) {
	const steal = "the hypervisor kept 2.0 % of the tested CPUs' time (steal), more than 1 %"
	slow := func(r *Run) { r.Latency.P90 *= 1.5 }
	alone := []report.Mode{report.Exclusive}
	for name, c := range map[string]struct {
		blocks  int
		spoil   func(*Run)
		modes   []report.Mode
		verdict stat.Verdict
		says    string
	}{
		"a third of the baseline, slow":   {12, slow, alone, stat.Refused, "Disturbances made unequal shares of the runs void (tenon 0 of 30, exclusive 12 of 42, exclusive-warm 0 of 30, exclusive-aa 0 of 30; p = 0.0"},
		"a third of the baseline, equal":  {12, func(*Run) {}, alone, stat.Met, "The first run of each block, disturbed or not, gives the same verdict."},
		"a third of all modes, slow":      {12, slow, synthetic.AllModes, stat.Met, ""},
		"few runs of the baseline, slow":  {2, slow, alone, stat.Met, ""},
		"a third of tenon, slow":          {12, slow, []report.Mode{report.Tenon}, stat.Refused, "the verdict rests on the selection"},
		"a third of a mode that is paced": {12, slow, []report.Mode{report.Default65}, stat.Met, ""},
	} {
		e := inventExperiment(30, synthetic.AllModes...)
		e.Looks, e.Ended = report.LooksOf(30), report.EndPlanned
		r := analyse(e, withVoid(plainRuns(e, func(*Run) {}), c.blocks, steal, c.spoil, c.modes...))
		got := claimOf(t, r.Claims, "tenon-p90")
		if got.Verdict != c.verdict || !strings.Contains(got.Explanation, c.says) || c.says == "" && strings.Contains(got.Explanation, "isturb") {
			t.Errorf("%s: %s, want %s and %q: %s", name, got.Verdict, c.verdict, c.says, got.Explanation)
		}
		unequal := c.blocks == 12 && len(c.modes) < len(synthetic.AllModes)
		if warned := strings.Contains(strings.Join(r.Warnings, "\n"), "disturbances made unequal shares of the runs void ("); warned != unequal {
			t.Errorf("%s: warnings %q", name, r.Warnings)
		}
	}
}

// TestEachClaimNamesItsModes checks the claims of all modes. A claim without modes
// would not depend on void runs.
func TestEachClaimNamesItsModes(t *testing.T) {
	modes := slices.Concat(synthetic.AllModes, report.SessionModes, report.MechanismModes, []report.Mode{report.ExclusiveAwake, report.TenonNoSlices})
	e := inventExperiment(30, modes...)
	all := report.Gather(e.Experiment, report.Commons(plainRuns(e, func(*Run) {})))
	for _, c := range append(claims(all), mechanismClaims(all)...) {
		met := c.Verdict == stat.Met || c.Verdict == stat.Tie || c.Verdict == stat.Differs
		if len(c.About) == 0 || met && len(c.Favours) == 0 {
			t.Errorf("%s, %s: about %v, in favour of %v", c.Name, c.Verdict, c.About, c.Favours)
		}
	}
}
