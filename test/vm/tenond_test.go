package vm

import (
	"testing"
	"time"
)

// Go begins the parallel tests of a package with the first, and then from the
// last one backwards: what takes longest stands in this file, so that the run
// does not end with it alone.

// TestTenondOnCgroupV2 runs the end-to-end tests of tenond where cgroups are
// v2 and the clock is the guest's own.
func TestTenondOnCgroupV2(t *testing.T) {
	t.Parallel()
	m := machine(t)
	var image Image
	withLoop(t, &image, m.Kernel)
	for name, pkg := range map[string]string{"tenon": "./cmd/tenon", "tenond": "./cmd/tenond"} {
		if err := image.File("/usr/bin/"+name, build(t, []string{"build"}, pkg)); err != nil {
			t.Fatal(err)
		}
	}
	tests := testsOf(t, &image, "test/e2e", "-test.run=^TestTenond", "-test.skip="+skipped(), "-test.timeout=16m")
	tests.Timeout = 17 * time.Minute // a busy host gives two guests half of what they want
	// The tracing program comes with TestProbe and TestSignals: to load it for
	// each test takes the emulator some ten seconds.
	tests.Env = append(tests.Env, "TENON_TEST_BIN=/usr/bin", "TENON_TEST_OWN_CLOCK=1", "TENON_TEST_NO_BPF=1")
	report := runOn(t, m, &image, 20*time.Minute, tests)
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
	}
}

// skipped are the tests of tenond that do not run in the guest.
func skipped() string {
	const noRuntime = "ByTheirLabels" // a container runtime is not there
	if everything() {
		return noRuntime
	}
	// Of the lock, of what the configuration file may be, and of the watchdog as a
	// process: the root stage has them on a real kernel, and to none of them does
	// it matter which version cgroups have.
	return noRuntime + "|RefusesASecondOne|WithABadNewConfig|WithABadFirstConfig|ConfigBecomesAPipe|WatchdogIsASession"
}

// TestSignalsOnCgroupV2 lets run-queue delay and pressure wake tenond where
// cgroups are v2.
func TestSignalsOnCgroupV2(t *testing.T) {
	t.Parallel()
	m := counting(t, machine(t))                                            // tenond has to answer in time
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1} // which the tests load all
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
