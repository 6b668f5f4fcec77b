package vm

import (
	"testing"
	"time"
)

// TestBEScheduler runs the tests of the BE scheduler on a kernel with sched_ext,
// which the machine may not have. The suites that take turns load it into all that
// are at hand in every run, one for each form of the kernel's interface.
func TestBEScheduler(t *testing.T) {
	t.Parallel()
	for _, series := range inTurn(t, "scheduler") {
		t.Run(series, func(t *testing.T) {
			t.Parallel()
			m := machine(t)
			m.Kernel = kernel(t, series)
			m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
			var image Image
			report := runOn(t, m, &image, 15*time.Minute,
				testsOf(t, &image, "internal/kernel/scx", "-test.skip=^(TestIsolatedCPUs|TestHookLeavesThroughput)$"),
				// The adapter around it, and what is left when it is killed.
				testsOf(t, &image, "internal/machine/host", "-test.run=^TestKilledAgent"))
			for _, o := range report.Outcomes {
				t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
			}
		})
	}
}

// TestBESchedulerBesideIsolatedCPUs: isolcpus= takes CPUs out of the kernel's
// balancing, and some kernels take no scheduler then.
func TestBESchedulerBesideIsolatedCPUs(t *testing.T) {
	t.Parallel()
	for _, series := range inTurn(t, "beside isolated CPUs") {
		t.Run(series, func(t *testing.T) {
			t.Parallel()
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
}
