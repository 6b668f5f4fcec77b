package vm

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// kernelFormats are the packages that read and write the kernel's files and
// detect its features. Their tests run as root on cgroup v2, on each kernel.
var kernelFormats = []string{
	"internal/kernel/proc",
	"internal/kernel/cgroup",
	"internal/kernel/task",
	"internal/kernel/exchange",
	"internal/machine/capability",
	"internal/machine/host",
}

// onCgroupV2 are packages that use the kernel through kernelFormats. Their
// tests run as root in each run, and on cgroup v2 on one kernel.
var onCgroupV2 = []string{"internal/machine/launch"}

// onAnyKernel are packages whose tests use only files, locks and processes. They
// run on the kernel of this machine, and in make soak also in a guest.
var onAnyKernel = []string{"internal/machine/journal", "internal/machine/lease"}

// sameOnEachKernel are patterns for tests of kernelFormats that take long in a
// guest. Their results depend on the version of cgroups, but not on the kernel.
// For each commit, one pattern runs on one kernel. In make soak, all of them
// run on each kernel.
var sameOnEachKernel = []string{
	"TestRestoreAfterKill9LeavesNoTrace|TestRestoreOwnLeavesOtherTenonsAlone",
	"TestStormOfCgroupsEndsInTheTruth|TestARemovedJournalIsRecoveredFromTheCgroups",
	"TestStormEndsInTheTruth|TestWatcherLooksWhereItMayNotWatch",
}

// skipsInGuest lists tests that cannot run in the guest, with the reasons. The
// key is the package and the beginning of the test's name. Any other test that
// is skipped in the guest is a failure, because the guest has everything that
// it needs.
var skipsInGuest = map[string]string{
	"internal/machine/host.TestResctrl":                                                           "this guest divides no caches: those of TestResctrl do",
	"internal/kernel/cgroup.TestV1":                                                               "the guest has no controller on cgroup v1",
	"internal/machine/host.TestACgroupBornNarrow":                                                 "on cgroup v2 a new cgroup copies nothing",
	"internal/machine/host.TestACPUSetGetsBackWhatItsParentStillHas":                              "on cgroup v2 the kernel gives an online CPU back to each cgroup",
	"internal/machine/host.TestRenamedCgroupsAreRestored":                                         "cgroup v2 refuses to rename a cgroup",
	"internal/machine/host.TestTheAgentFollowsRenamedCgroups":                                     "cgroup v2 refuses to rename a cgroup",
	"internal/machine/host.TestARemovedJournalIsRecoveredFromTheCgroups/also_of_a_renamed_cgroup": "cgroup v2 refuses to rename a cgroup",
	"internal/machine/host.TestACPUSetThatItsOwnerChoseStays":                                     "the same",
	"internal/machine/host.TestCgroupsInsidePodsAreNarrowedWithThem":                              "only cgroup v1 refuses a cpuset below which another has more",
	// This test runs on cgroup v1, on a machine with a disk.
	"internal/machine/host.TestColdCacheAndRefaultsAreCounted": "the guest has its files in memory",
	"internal/machine/host.TestAFailedKillIsReported":          "on cgroup v2 what is frozen dies",
}

// skipsOnKernel lists tests that cannot run on one kernel. The key is the
// series of the kernel.
var skipsOnKernel = map[string]map[string]string{
	"6.1": {
		noLatency: "CONFIG_BLK_CGROUP_IOLATENCY is off",
		"internal/kernel/task.TestSliceIsKeptAndZeroMeansDefault": "threads have a slice of their own from 6.12 on",
		"internal/kernel/task.TestSlicesAreLengthenedAndRestored": "the same",
		"internal/kernel/task.TestSlicesOfStrangersComeBack":      "the same",
		noCookies: "CONFIG_SCHED_CORE is off",
	},
	"6.12": {},
	"6.18": {
		noLatency: "CONFIG_BLK_CGROUP_IOLATENCY is off",
		noCookies: "CONFIG_SCHED_CORE is off",
	},
	"7.3": {
		noLatency: "CONFIG_BLK_CGROUP_IOLATENCY is off",
		"internal/machine/host.TestConformance/a_group_with_tasks_keeps_a_CPU": "an empty set is the parent's",
		noCookies: "CONFIG_SCHED_CORE is off",
	},
}

const (
	noLatency = "internal/machine/host.TestConformance/a_target_of_0_means_no_target"
	noCookies = "internal/kernel/task.TestCookie"
)

// seriesOf returns the series of a kernel image from kernel.sh. For any other
// image it returns "".
func seriesOf(image string) string {
	release, _ := strings.CutPrefix(filepath.Base(image), "vmlinuz-")
	for series := range skipsOnKernel {
		if strings.HasPrefix(release, series+".") {
			return series
		}
	}
	return ""
}

// mayBeSkipped returns the reason why a test may be skipped in the guest.
func mayBeSkipped(kernel, pkg, test string) (reason string, ok bool) {
	for _, skips := range []map[string]string{skipsInGuest, skipsOnKernel[seriesOf(kernel)]} {
		for prefix, reason := range skips {
			if strings.HasPrefix(pkg+"."+test, prefix) {
				return reason, true
			}
		}
	}
	return "", false
}

// TestConformanceOnCgroupV2 runs the packages whose results depend on the kernel
// on one kernel for each commit. On mostPackages it also runs the packages of onCgroupV2.
func TestConformanceOnCgroupV2(t *testing.T) {
	t.Parallel()
	m := machine(t) // skip before building anything
	for _, series := range conformanceInTurn(t, present(t, fewerPackages)) {
		packages := kernelFormats
		if series == mostPackages {
			packages = slices.Concat(packages, onCgroupV2)
			if runsEverywhere() {
				packages = append(packages, onAnyKernel...)
			}
		}
		t.Run(series, func(t *testing.T) {
			t.Parallel()
			m := m
			m.Kernel = kernel(t, series)
			if !runsEverywhere() {
				// An emulated CPU costs time even if it is idle. Two NUMA nodes with
				// the two threads of a core each are enough.
				m.Topology = Topology{Sockets: 2, CoresPerSocket: 1, ThreadsPerCore: 2}
			}
			var image Image
			withLoop(t, &image, m.Kernel)
			var commands []Command
			var args []string
			if !runsEverywhere() {
				chosen := chooseInTurn(t, 0, sameOnEachKernel)
				skipped := slices.DeleteFunc(slices.Clone(sameOnEachKernel), func(group string) bool { return slices.Contains(chosen, group) })
				args = []string{"-test.skip=^(" + strings.Join(skipped, "|") + ")$"}
			}
			for _, pkg := range packages {
				tests := testsOf(t, &image, pkg, args...)
				// TestBEScheduler tests the scheduler. It runs the emulator
				// with one thread.
				tests.Env = append(tests.Env, "TENON_TEST_NO_BPF=1")
				commands = append(commands, tests)
			}
			report := runOn(t, m, &image, 10*time.Minute, commands...)
			for _, o := range report.Outcomes {
				t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
			}
		})
	}
}

// TestProbeOnCgroupV2 loads the tracing programs into another kernel than that
// of this machine. It also reads the topology of a machine that has two caches
// in each socket, and a NUMA node without CPUs.
func TestProbeOnCgroupV2(t *testing.T) {
	oneOf(t, shaped, t.Name())
	t.Parallel() // the guest uses one CPU of the host
	m := machine(t)
	m.Topology.CachesPerSocket, m.MiBWithoutCPUs = 2, 256
	var image Image
	report := runOn(t, m, &image, 10*time.Minute,
		testsOf(t, &image, "internal/kernel/rqdelay"),
		testsOf(t, &image, "internal/machine/topology", "-test.run=^TestThisMachine$"))
	shape := regexp.MustCompile(`8 CPUs, SMT true, 4 caches, memory \[\{0 \d+\} \{1 \d+\} \{2 \d+\}\]`)
	if o, _ := report.Outcome("internal/machine/topology"); !shape.MatchString(o.Output) {
		t.Errorf("the topology of the guest:\n%s\nwant %v", o.Output, shape)
	}
	for _, o := range report.Outcomes {
		t.Run(o.Name, func(t *testing.T) { judge(t, report, o) })
	}
}

// withLoop gives a guest with this kernel a block device.
func withLoop(t *testing.T, image *Image, kernel string) {
	t.Helper()
	image.Text("/etc/one-disk", "")
	module := fromScript(t, "./kernel.sh", "--module=loop", seriesOf(kernel))
	if module == "" {
		return // the driver is built in
	}
	if err := image.File("/lib/loop.ko", module); err != nil {
		t.Fatal(err)
	}
}

// testsOf adds the tests of a package to the image. As with go test, they run
// in the package's folder and have its test data.
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
		Name: pkg,
		Args: append([]string{program, "-test.v", "-test.timeout=8m"}, args...),
		Dir:  dir,
		// The tests of this package select what runs in a guest.
		Env:     []string{"TENON_TEST_STRICT=1", "TENON_TEST_KERNELS=all", "TENON_TEST_EMULATED=1"},
		Timeout: 9 * time.Minute,
	}
}

// judge reports each test of a test binary that ran in the guest as a subtest
// on the host. It repeats failed tests, see [secondChance].
func judge(t *testing.T, report Report, o Outcome) {
	o, results := secondChance(t, o, repeatIn(t, report, o.Name))
	count := make(map[string]int)
	for _, r := range results {
		count[r.Action]++
		t.Run(r.Name, func(t *testing.T) {
			switch r.Action {
			case "FAIL":
				if r.Output == "" { // one of its subtests has the output
					t.Fail()
					return
				}
				t.Errorf("failed in the guest:\n%s", r.Output)
			case "SKIP":
				if reason, ok := mayBeSkipped(report.machine.Kernel, o.Name, r.Name); ok {
					t.Logf("skipped in the guest: %s", reason)
				} else {
					t.Errorf("skipped in the guest, which has all it asks for:\n%s", r.Output)
				}
			}
		})
	}
	fmt.Fprintf(t.Output(), "%d passed, %d failed, %d skipped in %.1f s\n", count["PASS"], count["FAIL"], count["SKIP"], o.Took.Seconds())
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
