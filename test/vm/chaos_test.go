package vm

import (
	"testing"
	"time"
)

// TestChaosOnCgroupV2 runs TestChaos in a guest with cgroup v2. Two kinds of damage are possible
// only there, because no other program uses the machine: a CPU goes offline and online again, and
// the clock is set. The test runs only in make soak.
func TestChaosOnCgroupV2(t *testing.T) {
	needMachines(t)
	if !runsEverywhere() {
		t.Skip("runs in make soak: set TENON_TEST_KERNELS=all")
	}
	t.Parallel()
	m := machine(t)
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 1}
	var image Image
	for name, pkg := range map[string]string{"tenon": "./cmd/tenon", "tenond": "./cmd/tenond"} {
		if err := image.File("/usr/bin/"+name, build(t, []string{"build"}, pkg)); err != nil {
			t.Fatal(err)
		}
	}
	tests := testsOf(t, &image, "test/e2e", "-test.run=^TestChaos$", "-test.timeout=16m")
	tests.Timeout = 17 * time.Minute
	// While other work uses the CPUs of the host, an emulated tenond may need
	// more than a minute for its first tick.
	tests.Env = append(tests.Env, "TENON_TEST_BIN=/usr/bin", "TENON_TEST_OWN_MACHINE=1", "TENON_TEST_NO_BPF=1", "TENON_TEST_PATIENCE=4m")
	report := runOn(t, m, &image, 20*time.Minute, tests)
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
	}
}
