package vm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Timing has no meaning in emulation, and the machines that run these tests are
// busy. Therefore, if a test fails in a guest, it is repeated once, alone in a
// new guest. If it fails again, it counts as failed. If it passes, it counts as
// passed, with a note that contains both logs: the cause may be an accident of
// timing or a rare bug. (Decision 7 has the reasons.)

// note logs a message about a test. The summary of the whole run contains it;
// see scripts/run-tests.sh.
func note(t testing.TB, test, what, first, second string) {
	t.Helper()
	t.Logf("NOTE: %s: %s\nfirst:\n%s\nrepeated:\n%s", test, what, lastLines(first, 15), lastLines(second, 15))
}

// accidents is the maximum number of tests of one binary that may fail by
// accident. If more fail, something is broken, and no test is repeated.
const accidents = 3

// A repeater runs a test binary again in a new guest, with more arguments.
type repeater func(args ...string) (Outcome, error)

// repeatIn returns a function that repeats a binary that ran in the report.
func repeatIn(t *testing.T, r Report, name string) repeater {
	return func(args ...string) (Outcome, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		again, err := r.Repeat(ctx, t.Output(), name, args...)
		o, ok := again.Outcome(name)
		if err == nil && !ok {
			err = fmt.Errorf("%s has not ended", name)
		}
		return o, err
	}
}

// secondChance repeats each failed test of a test binary alone. If the binary
// did not run all its tests, it repeats the whole binary. It returns the
// outcome, and the results that count.
func secondChance(t testing.TB, o Outcome, repeat repeater) (Outcome, []TestResult) {
	t.Helper()
	results := ParseGoTest(o.Output)
	if !ended(o.Output) {
		second, err := repeat()
		switch {
		case err != nil:
			t.Logf("repeated: %v", err)
		case second.Exit != 0:
			t.Logf("repeated: exit %d:\n%s", second.Exit, second.Output)
		default:
			note(t, t.Name(), "passed only when repeated", o.Output, second.Output)
			return second, ParseGoTest(second.Output)
		}
		return o, results
	}
	failed := failures(results)
	if len(failed) > accidents {
		t.Logf("%d tests failed, which is no accident: not repeated", len(failed))
		return o, results
	}
	for name, log := range failed {
		second, err := repeat("-test.run=^" + name + "$")
		again := ParseGoTest(second.Output)
		if err != nil || second.Exit != 0 || len(again) == 0 {
			t.Logf("%s, repeated alone: exit %d, error %v:\n%s", name, second.Exit, err, second.Output)
			continue
		}
		note(t, t.Name()+"/"+name, "passed only when repeated", log, second.Output)
		results = slices.DeleteFunc(results, func(r TestResult) bool { return topTest(r.Name) == name })
		results = append(results, again...)
	}
	if len(failures(results)) == 0 {
		o.Exit = 0
	}
	return o, results
}

// failures returns the failed tests, each with its log. The log of a test
// contains those of its subtests.
func failures(results []TestResult) map[string]string {
	logs := make(map[string]string)
	for _, r := range results {
		if r.Action == "FAIL" {
			logs[topTest(r.Name)] += r.Name + "\n" + r.Output
		}
	}
	return logs
}

// topTest returns the name of the top-level test of a subtest.
func topTest(name string) string { return strings.SplitN(name, "/", 2)[0] }

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// findings collects what the check of a run finds. It has the methods of a
// testing.T. If the run is repeated, the findings can be dropped.
type findings struct {
	said, wrong []string
	parts       map[string]*findings
}

func (f *findings) Logf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func (f *findings) Errorf(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// Run runs a check under its own name.
func (f *findings) Run(name string, check func(*findings)) {
	if f.parts == nil {
		f.parts = make(map[string]*findings)
	}
	f.parts[name] = new(findings)
	check(f.parts[name])
}

// faults returns all faults, each in one or more lines.
func (f *findings) faults() []string {
	all := slices.Clone(f.wrong)
	for _, name := range slices.Sorted(maps.Keys(f.parts)) {
		for _, fault := range f.parts[name].faults() {
			all = append(all, name+": "+fault)
		}
	}
	return all
}

// report reports the findings to a test.
func (f *findings) report(t *testing.T) {
	t.Helper()
	for _, said := range f.said {
		t.Log(said)
	}
	for _, wrong := range f.wrong {
		t.Error(wrong)
	}
	for _, name := range slices.Sorted(maps.Keys(f.parts)) {
		t.Run(name, f.parts[name].report)
	}
}

// runChecked runs commands and checks their output. If the check finds a fault,
// it runs all commands once more.
func runChecked(t *testing.T, m Machine, image *Image, limit time.Duration, check func(*findings, Report), commands ...Command) Report {
	t.Helper()
	report := runOn(t, m, image, limit, commands...)
	first := new(findings)
	check(first, report)
	if len(first.faults()) == 0 {
		first.report(t)
		return report
	}
	wrong := strings.Join(first.faults(), "\n")
	t.Logf("failed the first time:\n%s", wrong)
	report = runOn(t, m, image, limit, commands...)
	second := new(findings)
	check(second, report)
	if len(second.faults()) == 0 {
		note(t, t.Name(), "passed only when repeated", wrong, strings.Join(second.said, "\n"))
	}
	second.report(t)
	return report
}
