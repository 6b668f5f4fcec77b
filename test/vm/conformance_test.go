package vm

import (
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kernelPackages are the packages whose tests speak to the kernel and
// therefore run on cgroup v2 as well, as root.
var kernelPackages = []string{
	"internal/proc",
	"internal/cgroup",
	"internal/task",
	"internal/journal",
	"internal/host",
	"internal/launch",
	"internal/lease",
}

// skipsInGuest are the tests that cannot run in the guest, by package and the
// beginning of their name, and why. Any other skip there is a failure: the
// guest has all that the tests ask for.
var skipsInGuest = map[string]string{
	"internal/host.TestResctrl": "this guest divides no caches: those of TestResctrl do",
	"internal/cgroup.TestV1":    "the guest has no controller on cgroup v1",
	// Counted on cgroup v1, where the machine at hand has a disk.
	"internal/host.TestColdCacheAndRefaultsAreCounted": "the guest has its files in memory",
	"internal/host.TestWhatDoesNotDieIsSaid":           "on cgroup v2 what is frozen dies",
	// CONFIG_BLK_CGROUP_IOLATENCY is off in Debian's kernels.
	"internal/host.TestConformance/a_target_of_0_is_none": "its kernel has no io.latency",
}

// mayBeSkipped returns why a test may be skipped in the guest.
func mayBeSkipped(pkg, test string) (reason string, ok bool) {
	for prefix, reason := range skipsInGuest {
		if strings.HasPrefix(pkg+"."+test, prefix) {
			return reason, true
		}
	}
	return "", false
}

func TestConformanceOnCgroupV2(t *testing.T) {
	machine(t) // before anything is built

	var image Image
	withLoop(t, &image)
	var commands []Command
	for _, pkg := range kernelPackages {
		commands = append(commands, testsOf(t, &image, pkg))
	}
	report := run(t, &image, 10*time.Minute, commands...)
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, o) })
	}
}

// TestProbeOnCgroupV2 loads the tracing programs into another kernel than the
// one at hand.
func TestProbeOnCgroupV2(t *testing.T) {
	m := machine(t)
	m.OneThread = true
	var image Image
	report := runOn(t, m, &image, 10*time.Minute, testsOf(t, &image, "internal/probe"))
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, o) })
	}
}

// TestTenondOnCgroupV2 runs the end-to-end tests of tenond where cgroups are
// v2 and the clock is the guest's own.
func TestTenondOnCgroupV2(t *testing.T) {
	machine(t)
	var image Image
	withLoop(t, &image)
	for name, pkg := range map[string]string{"tenon": "./cmd/tenon", "tenond": "./cmd/tenond"} {
		if err := image.File("/usr/bin/"+name, build(t, []string{"build"}, pkg)); err != nil {
			t.Fatal(err)
		}
	}
	// There are no container runtimes in the guest.
	tests := testsOf(t, &image, "test/e2e", "-test.run=^TestTenond", "-test.skip=ByTheirLabels")
	// To attach a tracing program rewrites the kernel's code, which the emulator
	// bears in one thread only.
	tests.Env = append(tests.Env, "TENON_TEST_BIN=/usr/bin", "TENON_TEST_OWN_CLOCK=1", "TENON_TEST_NO_BPF=1")
	report := run(t, &image, 10*time.Minute, tests)
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, o) })
	}
}

// TestSignalsOnCgroupV2 lets run-queue delay and pressure wake tenond where
// cgroups are v2.
func TestSignalsOnCgroupV2(t *testing.T) {
	m := machine(t)
	m.OneThread = true
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
		t.Run(o.Name, func(t *testing.T) { judge(t, o) })
	}
}

// withLoop gives the guest a block device.
func withLoop(t *testing.T, image *Image) {
	t.Helper()
	module, err := exec.Command("./kernel.sh", "--loop").Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		missing(t, "%s", exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := image.File("/lib/loop.ko", strings.TrimSpace(string(module))); err != nil {
		t.Fatal(err)
	}
}

// testsOf packs the tests of a package, to run as under go test: in the
// package's folder, with its test data.
func testsOf(t *testing.T, image *Image, pkg string, args ...string) Command {
	t.Helper()
	source := filepath.Join("../..", pkg)
	if tests, _ := filepath.Glob(filepath.Join(source, "*_test.go")); len(tests) == 0 {
		t.Errorf("%s has no tests", pkg)
	}
	dir := path.Join("/src", pkg)
	image.Dir(dir)
	if data := filepath.Join(source, "testdata"); isDir(data) {
		if err := image.Tree(path.Join(dir, "testdata"), data); err != nil {
			t.Fatal(err)
		}
	}
	program := path.Join("/tests", pkg)
	if err := image.File(program, build(t, []string{"test", "-c"}, "./"+pkg)); err != nil {
		t.Fatal(err)
	}
	return Command{
		Name:    pkg,
		Args:    append([]string{program, "-test.v", "-test.timeout=8m"}, args...),
		Dir:     dir,
		Env:     []string{"TENON_TEST_STRICT=1"},
		Timeout: 9 * time.Minute,
	}
}

// judge reports each test of a test binary that ran in the guest as a test
// here.
func judge(t *testing.T, o Outcome) {
	results := ParseGoTest(o.Output)
	count := make(map[string]int)
	for _, r := range results {
		count[r.Action]++
		t.Run(r.Name, func(t *testing.T) {
			switch r.Action {
			case "FAIL":
				t.Errorf("failed in the guest:\n%s", r.Output)
			case "SKIP":
				if reason, ok := mayBeSkipped(o.Name, r.Name); ok {
					t.Logf("skipped in the guest: %s", reason)
				} else {
					t.Errorf("skipped in the guest, which has all it asks for:\n%s", r.Output)
				}
			}
		})
	}
	t.Logf("%d passed, %d failed, %d skipped in %.1f s", count["PASS"], count["FAIL"], count["SKIP"], o.Took.Seconds())
	if len(results) == 0 {
		t.Errorf("no test ran:\n%s", o.Output)
	}
	if o.Exit != 0 && count["FAIL"] == 0 {
		t.Errorf("exit status %d without a failed test (a panic, or the time ran out):\n%s", o.Exit, o.Output)
	}
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
