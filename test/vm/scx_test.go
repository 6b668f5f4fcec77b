package vm

import (
	"testing"
	"time"
)

// TestBEScheduler runs the tests of the BE scheduler on kernels with sched_ext,
// one for each form of its interface that is at hand. The machine may have none.
func TestBEScheduler(t *testing.T) {
	t.Parallel()
	for _, series := range []string{"6.12", "6.18", "7.3"} {
		t.Run(series, func(t *testing.T) {
			t.Parallel()
			m := machine(t)
			m.Kernel = kernel(t, series)
			// To attach a program rewrites the kernel's code, which the emulator
			// bears in one thread only.
			m.OneThread = true
			m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
			var image Image
			report := runOn(t, m, &image, 15*time.Minute,
				testsOf(t, &image, "internal/scx", "-test.skip=^(TestIsolatedCPUs|TestHookLeavesThroughput)$"),
				// The adapter around it, and what is left when it is killed.
				testsOf(t, &image, "internal/host", "-test.run=^TestKilledAgent"))
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
	for _, series := range []string{"6.12", "6.18", "7.3"} {
		t.Run(series, func(t *testing.T) {
			t.Parallel()
			m := machine(t)
			m.Kernel = kernel(t, series)
			m.OneThread = true
			m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
			m.KernelArgs = append(m.KernelArgs, "isolcpus=3")
			var image Image
			tests := testsOf(t, &image, "internal/scx", "-test.run=^TestIsolatedCPUs$")
			report := runOn(t, m, &image, 5*time.Minute, tests)
			o, _ := report.Outcome(tests.Name)
			judge(t, report, o)
		})
	}
}
