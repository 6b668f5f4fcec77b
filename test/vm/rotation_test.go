package vm

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/test/turn"
)

// Some suites check the same facts on several machines. For each commit, such a
// suite runs on one machine. In make soak, it runs on all of them.

// rotating are the suites that run on one kernel for each commit, with their
// places. Suites with different places get different kernels.
var rotating = map[string]int{"isolation": 0, "scheduler": 1, "cycles": 2, "saturated": 2, "beside isolated CPUs": 2}

// alternating are suites of the BE scheduler, of which one runs when they are the long
// test of the commit: a guest takes one to five minutes for each. Their number and the number of
// kernels have no common divisor, so that each suite comes to each kernel.
var alternating = []string{"scheduler", "cycles", "scheduler", "saturated", "beside isolated CPUs"}

// One test of each of these lists runs for each commit.
var (
	// A guest takes two to five minutes for each, so they stand in one list, and a commit has
	// one of them. The experiments are one entry, and so are the suites of the BE scheduler.
	// Isolation, these suites and the means by hand load the BE scheduler into a kernel that
	// has sched_ext. What stands twice are the many suites of the BE scheduler, and the
	// conformance suite on the kernel on which it runs the most packages.
	long = []string{
		"TestIsolation", "TestKubeletOnCgroupV2", "alternating", "TestClusterWithSystemd", conformance,
		"lab", "TestQOSByHandInKernels", "alternating", "TestSignalsOnCgroupV2", conformance,
	}
	// The first loads the tracing programs. The first two read a machine of many caches.
	shaped = []string{"TestProbeOnCgroupV2", "TestTenondOnSeveralCaches", "TestReclaimOnCgroupV2"}
)

// conformance is the entry of the conformance suite on mostPackages.
const conformance = "conformance"

// mostPackages is the kernel on which the conformance suite runs the packages of onCgroupV2,
// too, and fewerPackages are its other kernels: there it takes a third of the time.
const mostPackages = "6.18"

var fewerPackages = []string{"6.1", "6.12", "7.3"}

// conformanceInTurn returns the kernels of the conformance suite for this commit: one of
// the others if the long test of the commit is another one.
func conformanceInTurn(t *testing.T, others []string) []string {
	t.Helper()
	switch {
	case runsEverywhere():
		return slices.Concat(others, []string{mostPackages})
	case slices.Contains(chooseInTurn(t, 0, long), conformance):
		return []string{mostPackages}
	}
	return chooseInTurn(t, 0, others)
}

// oneOf skips a test unless it is the one of a list for this commit.
func oneOf(t *testing.T, list []string, entry string) {
	t.Helper()
	needMachines(t)
	if !slices.Contains(list, entry) {
		t.Fatalf("%q has no place in %q", entry, list)
	}
	if chosen := chooseInTurn(t, 0, list); !slices.Contains(chosen, entry) {
		t.Skipf("%s runs for this commit: TENON_TEST_KERNELS=all runs all, as make soak does", chosen[0])
	}
}

// withSchedExt are the series of the kernels with sched_ext. They have three
// forms of its interface.
var withSchedExt = []string{"6.12", "6.18", "7.3"}

// builtHere is the series of the kernel that kernel.sh compiles, for ten minutes
// and more. make soak does that. It fetches the others.
const builtHere = "6.12"

// present returns the kernels of a list without the one that must be built, if
// this machine does not have it. In make soak all of them must be there.
func present(t *testing.T, all []string) []string {
	t.Helper()
	if runsEverywhere() || exec.Command("./kernel.sh", "--cached", builtHere).Run() == nil {
		return all
	}
	t.Logf("without the kernel %s, which make soak builds", builtHere)
	return slices.DeleteFunc(slices.Clone(all), func(series string) bool { return series == builtHere })
}

// runsEverywhere reports whether suites run on all of their machines.
func runsEverywhere() bool { return turn.All() }

// runInTurn runs a suite of rotating on its kernels for this commit. It skips a suite of alternating
// unless it is the long test of the commit. A single kernel runs at once: parallel subtests would begin after all
// other tests, and these suites take long.
func runInTurn(t *testing.T, suite string, run func(t *testing.T, series string)) {
	t.Helper()
	if slices.Contains(alternating, suite) {
		oneOf(t, long, "alternating")
	}
	if chosen := chooseInTurn(t, 0, alternating); slices.Contains(alternating, suite) && !slices.Contains(chosen, suite) {
		t.Skipf("of %s, %s runs for this commit: TENON_TEST_KERNELS=all runs all, as make soak does", strings.Join(alternating, ", "), chosen[0])
	}
	kernels := kernelsInTurn(t, suite, present(t, withSchedExt))
	for _, series := range kernels {
		t.Run(series, func(t *testing.T) {
			if len(kernels) > 1 {
				t.Parallel()
			}
			run(t, series)
		})
	}
}

// kernelsInTurn returns those of the kernels on which a suite of rotating runs.
// They depend on the commit.
func kernelsInTurn(t *testing.T, suite string, kernels []string) []string {
	t.Helper()
	place, found := rotating[suite]
	if !found {
		t.Fatalf("no place in the rotation for %q", suite)
	}
	return chooseInTurn(t, place, kernels)
}

// chooseInTurn returns the elements of a list that run for this commit; see
// [turn.Choose].
func chooseInTurn(t *testing.T, place int, all []string) []string {
	t.Helper()
	chosen, err := turn.Choose(place, all)
	if err != nil {
		needMachines(t) // a copy of the sources without machines needs no commit
		t.Fatal(err)
	}
	if !runsEverywhere() {
		t.Logf("of %s, %s", strings.Join(all, ", "), chosen[0])
	}
	return chosen
}

// labsInTurn are the experiments of the lab that run in guests with cgroup v2.
// One of them runs when the lab is the long test of the commit. As root, all of them run for each commit on
// the kernel of this machine (internal/lab).
var labsInTurn = []string{"colocation", "kernel-qos", "memory and reaction"}

// needTurn skips the test of an experiment unless it is the one for this commit.
func needTurn(t *testing.T, experiment string) {
	t.Helper()
	oneOf(t, long, "lab")
	if !slices.Contains(labsInTurn, experiment) {
		t.Fatalf("no place in the rotation for %q", experiment)
	}
	if chosen := chooseInTurn(t, 0, labsInTurn); !slices.Contains(chosen, experiment) {
		t.Skipf("of the lab, %s runs for this commit: set TENON_TEST_KERNELS=all to run everything, as make soak does", chosen[0])
	}
}

func TestEachSuiteComesToEachKernel(t *testing.T) {
	ran := map[string]bool{}
	for commit := range 300 {
		t.Setenv("TENON_TEST_KERNELS", fmt.Sprint(commit))
		second := chooseInTurn(t, 0, alternating)[0]
		on := map[string]string{}
		for _, suite := range []string{"isolation", second} {
			on[suite] = kernelsInTurn(t, suite, withSchedExt)[0]
			ran[suite+" "+on[suite]] = true
		}
		if on["isolation"] == on[second] {
			t.Errorf("in turn %d both suites run on %s, want two kernels", commit, on[second])
		}
	}
	for suite := range rotating {
		for _, series := range withSchedExt {
			if !ran[suite+" "+series] {
				t.Errorf("%s never runs on %s", suite, series)
			}
		}
	}
	t.Setenv("TENON_TEST_KERNELS", "all")
	if got := kernelsInTurn(t, "cycles", withSchedExt); !slices.Equal(got, withSchedExt) {
		t.Errorf("all of them are %v, want %v", got, withSchedExt)
	}
}

func TestEachExperimentHasATurn(t *testing.T) {
	ran := map[string]int{}
	for commit := range 450 {
		t.Setenv("TENON_TEST_KERNELS", fmt.Sprint(commit))
		if long := chooseInTurn(t, 0, long); slices.Contains(long, "lab") {
			ran[chooseInTurn(t, 0, labsInTurn)[0]]++
		}
	}
	for _, experiment := range labsInTurn {
		if ran[experiment] < 8 { // half of what is likely
			t.Errorf("%s runs in %d of 450 turns", experiment, ran[experiment])
		}
	}
	t.Setenv("TENON_TEST_KERNELS", "all")
	if got := chooseInTurn(t, 0, labsInTurn); !slices.Equal(got, labsInTurn) {
		t.Errorf("all of them are %v, want %v", got, labsInTurn)
	}
}

// TestACommitHasOneLongSuite checks for many commits that the conformance suite runs most
// packages only as the long test of the commit, and that each test of a list comes before
// the commits that decision 92 names have passed.
func TestACommitHasOneLongSuite(t *testing.T) {
	const commits = 500
	last, gap := map[string]int{}, map[string]int{}
	for commit := range commits {
		t.Setenv("TENON_TEST_KERNELS", fmt.Sprint(commit))
		one, kernels := chooseInTurn(t, 0, long)[0], conformanceInTurn(t, fewerPackages)
		if most := slices.Contains(kernels, mostPackages); len(kernels) != 1 || most != (one == conformance) {
			t.Fatalf("commit %d: the long test is %s, and the conformance suite runs on %v", commit, one, kernels)
		}
		for _, name := range []string{one, chooseInTurn(t, 0, shaped)[0], kernels[0]} {
			gap[name], last[name] = max(gap[name], commit-last[name]), commit
		}
	}
	for _, name := range slices.Concat(long, shaped, fewerPackages, []string{mostPackages}) {
		if missed := max(gap[name], commits-last[name]); missed > 100 {
			t.Errorf("%d commits miss %s", missed, name)
		}
	}
}

func TestNoDividerIsForgotten(t *testing.T) {
	got := slices.Sorted(slices.Values(slices.Concat(alwaysDividing, dividingInTurn)))
	if want := slices.Sorted(maps.Keys(dividers)); !slices.Equal(got, want) {
		t.Errorf("the machines that run are %v, want %v", got, want)
	}
}
