package vm

import (
	"slices"
	"testing"
	"time"
)

// TestQOSByHandInKernels loads and unloads each isolation mechanism of a kernel
// through tenond while work runs. For each commit this is one kernel: one of
// those with sched_ext, or 6.1, which has other mechanisms.
func TestQOSByHandInKernels(t *testing.T) {
	oneOf(t, long, t.Name())
	t.Parallel()
	m := machine(t)
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
	for _, series := range chooseInTurn(t, 0, present(t, slices.Concat([]string{"6.1"}, withSchedExt))) {
		t.Run(series, func(t *testing.T) {
			t.Parallel()
			m := m
			m.Kernel = kernel(t, series)
			var image Image
			for name, pkg := range map[string]string{"tenon": "./cmd/tenon", "tenond": "./cmd/tenond"} {
				if err := image.File("/usr/bin/"+name, build(t, []string{"build"}, pkg)); err != nil {
					t.Fatal(err)
				}
			}
			tests := testsOf(t, &image, "test/e2e", "-test.run=^TestQOS")
			tests.Env = append(tests.Env, "TENON_TEST_BIN=/usr/bin", "TENON_TEST_PATIENCE=4m")
			report := runOn(t, m, &image, 10*time.Minute, tests)
			for _, o := range report.Outcomes {
				t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
			}
		})
	}
}
