package vm

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/test/turn"
)

// Go starts the first parallel test of a package first, and then the others in
// reverse order. This file is one of the last. Therefore it has the tests that
// take longest, so that nothing waits for them at the end.

// TestTenondOnCgroupV2 runs the end-to-end tests of tenond with cgroup v2: half of
// them for each commit. The tests may set the clock, because only the guest uses it.
func TestTenondOnCgroupV2(t *testing.T) {
	t.Parallel()
	m := countInstructions(t, machine(t)) // the tests have limits of seconds, and most of them mostly wait
	// An emulated CPU costs time even if it is idle. Two NUMA nodes with the two
	// threads of a core each are enough.
	m.Topology = Topology{Sockets: 2, CoresPerSocket: 1, ThreadsPerCore: 2}
	var image Image
	withLoop(t, &image, m.Kernel)
	for name, pkg := range map[string]string{"tenon": "./cmd/tenon", "tenond": "./cmd/tenond"} {
		if err := image.File("/usr/bin/"+name, build(t, []string{"build"}, pkg)); err != nil {
			t.Fatal(err)
		}
	}
	tests := testsOf(t, &image, "test/e2e", "-test.run=^TestTenond", "-test.skip="+skippedTests(t), "-test.timeout=16m")
	tests.Timeout = 17 * time.Minute
	// TestProbe and TestSignals test the tracing program. The tests in this
	// guest do not load that program, because loading takes the emulator some
	// ten seconds in each test.
	tests.Env = append(tests.Env, "TENON_TEST_BIN=/usr/bin", "TENON_TEST_OWN_CLOCK=1", "TENON_TEST_NO_BPF=1")
	report := runOn(t, m, &image, 20*time.Minute, tests)
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
	}
}

// TestTenondOnSeveralCaches runs the end-to-end test that needs NUMA nodes with
// several L3 caches.
func TestTenondOnSeveralCaches(t *testing.T) {
	oneOf(t, shaped, t.Name())
	t.Parallel()
	m := countInstructions(t, machine(t))
	m.Topology = Topology{Sockets: 2, CoresPerSocket: 4, ThreadsPerCore: 2, CachesPerSocket: 2}
	var image Image
	for name, pkg := range map[string]string{"tenon": "./cmd/tenon", "tenond": "./cmd/tenond"} {
		if err := image.File("/usr/bin/"+name, build(t, []string{"build"}, pkg)); err != nil {
			t.Fatal(err)
		}
	}
	tests := testsOf(t, &image, "test/e2e", "-test.run=^TestServicesGetCachesOfTheirOwn$")
	tests.Env = append(tests.Env, "TENON_TEST_BIN=/usr/bin", "TENON_TEST_NO_BPF=1")
	report := runOn(t, m, &image, 15*time.Minute, tests)
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
	}
}

// skippedTests matches the names of tests that do not run in the guest.
func skippedTests(t *testing.T) string {
	t.Helper()
	const noRuntime = "ByTheirLabels" // a container runtime is not there
	if runsEverywhere() {
		return noRuntime
	}
	skipped := append([]string{noRuntime}, onAnyCgroups...)
	rest := slices.DeleteFunc(testsOfTenond(t), func(name string) bool {
		return slices.ContainsFunc(skipped, func(part string) bool { return strings.Contains(name, part) })
	})
	for _, name := range rest {
		if !turn.Runs(2, rest, name) {
			skipped = append(skipped, "^"+name+"$")
		}
	}
	return strings.Join(skipped, "|")
}

// onAnyCgroups are parts of the names of those tests of tenond that do not
// depend on the version of cgroups. They run as root on the kernel of this
// machine, and in make soak also in the guest. They are about the lock, the
// configuration as a file, the watchdog as a process, the state directory and
// its file system, and the API server and the kubelet of a test.
var onAnyCgroups = []string{
	"RefusesASecondOne", "WithABadNewConfig", "WithABadFirstConfig", "ConfigBecomesAPipe",
	"WatchdogIsASession", "StartsAnotherWatchdog", "AnnouncesItsStop",
	"OutlivesItsStateDirectory", "WithAFullJournal",
	"OutlastsAPIServerAndKubelet", "KnowsNothingLetsGoOfNothing", "IsSmallOnANodeOf110Pods",
}

// testsOfTenond returns the names of the tests that TestTenondOnCgroupV2 runs.
func testsOfTenond(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../e2e/tenond_*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (TestTenond\w*)\(`).FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	if len(names) == 0 {
		t.Fatal("test/e2e has no test of tenond")
	}
	return names
}

func TestOnlyTestsThatExistAreLeftToTheMachine(t *testing.T) {
	all := testsOfTenond(t)
	for _, part := range onAnyCgroups {
		if !slices.ContainsFunc(all, func(name string) bool { return strings.Contains(name, part) }) {
			t.Errorf("no test of tenond has %q in its name", part)
		}
	}
}

// TestSignalsOnCgroupV2 checks that run-queue delay and pressure wake tenond,
// on cgroup v2.
func TestSignalsOnCgroupV2(t *testing.T) {
	oneOf(t, long, t.Name())
	t.Parallel()
	m := countInstructions(t, machine(t))                                   // tenond has to answer in time
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1} // the tests keep both CPUs busy
	var image Image
	for name, pkg := range map[string]string{"tenon": "./cmd/tenon", "tenond": "./cmd/tenond"} {
		if err := image.File("/usr/bin/"+name, build(t, []string{"build"}, pkg)); err != nil {
			t.Fatal(err)
		}
	}
	tests := testsOf(t, &image, "test/e2e", "-test.run=^TestSignals")
	tests.Env = append(tests.Env, "TENON_TEST_BIN=/usr/bin")
	report := runOn(t, m, &image, 10*time.Minute, tests)
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
	}
}
