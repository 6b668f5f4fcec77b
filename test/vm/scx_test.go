package vm

import (
	"testing"
	"time"
)

// TestBESchedulerInKernels runs the tests of the BE scheduler on kernels with
// sched_ext. The machine at hand may have none.
func TestBESchedulerInKernels(t *testing.T) {
	m := machine(t)
	// To attach a program rewrites the kernel's code, which the emulator bears
	// in one thread only.
	m.OneThread = true
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
	var image Image
	report := runOn(t, m, &image, 10*time.Minute, testsOf(t, &image, "internal/scx"))
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
	}
}
