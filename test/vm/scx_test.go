package vm

import (
	"testing"
	"time"
)

// TestBEScheduler runs the tests of the BE scheduler on a kernel with
// sched_ext, which the kernel of this machine may lack. Each of the test kernels
// with sched_ext has another form of the kernel's interface.
func TestBEScheduler(t *testing.T) {
	t.Parallel()
	runInTurn(t, "scheduler", func(t *testing.T, series string) {
		m := machine(t)
		m.Kernel = kernel(t, series)
		m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
		var image Image
		tests := testsOf(t, &image, "internal/kernel/scx", "-test.skip=^(TestIsolatedCPUs|TestHookLeavesThroughput)$")
		if runsEverywhere() {
			tests.Env = append(tests.Env, "TENON_TEST_LONG=1")
		}
		report := runOn(t, m, &image, 15*time.Minute, tests,
			// These tests check how the host uses the scheduler, and the
			// state of the node after an agent with a scheduler was killed.
			testsOf(t, &image, "internal/machine/host", "-test.run=^TestKilledAgent"))
		for _, o := range report.Outcomes {
			t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
		}
	})
}

// TestBESchedulerBesideIsolatedCPUs uses isolcpus=, which excludes CPUs from
// the kernel's load balancing. Some kernels then refuse to load any scheduler.
func TestBESchedulerBesideIsolatedCPUs(t *testing.T) {
	t.Parallel()
	runInTurn(t, "beside isolated CPUs", func(t *testing.T, series string) {
		m := machine(t)
		m.Kernel = kernel(t, series)
		m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
		m.KernelArgs = append(m.KernelArgs, "isolcpus=3")
		var image Image
		tests := testsOf(t, &image, "internal/kernel/scx", "-test.run=^TestIsolatedCPUs$")
		report := runOn(t, m, &image, 5*time.Minute, tests)
		o, _ := report.Outcome(tests.Name)
		judge(t, report, o)
	})
}
