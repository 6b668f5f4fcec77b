package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/test/cluster"
)

// machine returns the machine of the tests. If a needed program is missing, the
// test is skipped, or fails with TENON_TEST_STRICT=1.
func machine(t *testing.T) Machine {
	t.Helper()
	needMachines(t)
	for program, pkg := range map[string]string{emulator: "qemu-system-x86", "busybox": "busybox-static"} {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, "needs %s: install %s, or run scripts/install-deps.sh test", program, pkg)
		}
	}
	return TwoSockets(kernel(t))
}

// needMachines skips the test if tests may not boot virtual machines.
func needMachines(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a virtual machine: not with -short")
	}
	if os.Getenv("TENON_TEST_VM") != "1" {
		t.Skip("boots a virtual machine in software emulation, which takes minutes: set TENON_TEST_VM=1, as make test does")
	}
}

// kernel returns the image of a kernel of the series. Without a series, it is
// the kernel of most tests; see kernel.sh. If there is no image, the test is
// skipped or fails.
func kernel(t *testing.T, series ...string) string {
	t.Helper()
	return fromScript(t, "./kernel.sh", append([]string{"--cached"}, series...)...)
}

// fromScript returns the path that a script prints. If the script fails, its
// message names the missing dependency, and the test is skipped or fails.
func fromScript(t *testing.T, script string, args ...string) string {
	t.Helper()
	output, err := exec.Command(script, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		missing(t, "%s", exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(output))
}

// countInstructions makes the clock of the machine count instructions; see
// [Machine].ICount.
func countInstructions(t *testing.T, m Machine) Machine {
	t.Helper()
	m.ICount, m.Emulator = true, fromScript(t, "./qemu.sh", "--cached")
	return m
}

func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("TENON_TEST_STRICT") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// runOn boots the machine, runs the commands, and logs how long each command
// took. If the machine does not reach the end within the limit, it tries once
// more; see [note]. If that fails, too, the test fails.
func runOn(t *testing.T, m Machine, image *Image, limit time.Duration, commands ...Command) Report {
	t.Helper()
	report, err := attempt(t, m, image, limit, commands)
	if err != nil && t.Context().Err() == nil {
		first := err
		if report, err = attempt(t, m, image, limit, commands); err == nil {
			note(t, t.Name(), "a machine got to its end only when repeated", first.Error(), "")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(t.Output(), "boot %.1f s, whole %.1f s, CPU %.1f s\n", report.Boot.Seconds(), report.Total.Seconds(), report.CPU.Seconds())
	for _, o := range report.Outcomes {
		fmt.Fprintf(t.Output(), "%-30s exit %d after %.1f s\n", o.Name, o.Exit, o.Took.Seconds())
	}
	return report
}

func attempt(t *testing.T, m Machine, image *Image, limit time.Duration, commands []Command) (Report, error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return m.Run(ctx, image, commands, t.Output())
}

// build compiles a package of this module without cgo, so that the program runs
// in a guest without libraries. It returns the path of the program.
func build(t *testing.T, verb []string, pkg string) string {
	t.Helper()
	one, _ := programs.LoadOrStore(strings.Join(slices.Concat(verb, []string{pkg}), " "), sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp(programsDir, "")
		if err != nil {
			return "", err
		}
		program := filepath.Join(dir, filepath.Base(pkg))
		// Symbols and debug information are a third of a program, which each guest
		// would copy. Stack traces do not need them.
		compile := exec.Command("go", slices.Concat(verb, []string{"-ldflags=-s -w", "-o", program, pkg})...)
		compile.Dir = "../.."
		compile.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := compile.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go %s %s: %w\n%s", strings.Join(verb, " "), pkg, err, output)
		}
		return program, nil
	}))
	program, err := one.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

var (
	programs    sync.Map // func() (path string, err error), by the arguments of go
	programsDir string
)

func TestMain(m *testing.M) {
	cluster.Main()
	var err error
	if programsDir, err = os.MkdirTemp("", "tenon-vm-bin-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(programsDir)
	os.Exit(status)
}

func TestGuestHasTheTopologyAndControllersAskedFor(t *testing.T) {
	t.Parallel()
	const cpu = "/sys/devices/system/cpu"
	want := map[string]struct{ script, output string }{
		"siblings share a core":     {"cat " + cpu + "/cpu[0-7]/topology/thread_siblings_list | tr '\\n' ' '", "0-1 0-1 2-3 2-3 4-5 4-5 6-7 6-7 "},
		"sockets have a cache each": {"cat " + cpu + "/cpu[0-7]/cache/index3/shared_cpu_list | uniq | tr '\\n' ' '", "0-3 4-7 "},
		"sockets are NUMA nodes":    {"cat /sys/devices/system/node/node[01]/cpulist /sys/devices/system/node/node0/distance | tr '\\n' ' '", "0-3 4-7 10 21 "},
		"cgroup v2 is alone":        {"grep -c ' - cgroup' /proc/self/mountinfo; cut -d' ' -f1-4 /sys/fs/cgroup/cgroup.controllers", "1\ncpuset cpu io memory"},
		"pressure is counted":       {"ls /proc/pressure | tr '\\n' ' '", "cpu io memory "},
		"loopback answers":          {"ping -c1 -W5 127.0.0.1 >/dev/null && echo up", "up"},
		"clock is the tsc":          {"cat /sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"},
	}
	var commands []Command
	for name, c := range want {
		commands = append(commands, Shell(strings.ReplaceAll(name, " ", "-"), c.script))
	}
	stuck := Shell("stuck", "sleep 1000")
	stuck.Timeout = time.Second
	commands = append(commands, Shell("fails", "exit 7"), stuck)
	check := func(t *findings, report Report) {
		for name, c := range want {
			o, ok := report.Outcome(strings.ReplaceAll(name, " ", "-"))
			if !ok || o.Exit != 0 || strings.TrimSpace(o.Output) != strings.TrimSpace(c.output) {
				t.Errorf("%s: exit %d, output %q, want %q", name, o.Exit, o.Output, c.output)
			}
		}
		for name, exit := range map[string]int{"fails": 7, "stuck": 143} {
			if o, _ := report.Outcome(name); o.Exit != exit {
				t.Errorf("%s: exit %d, want %d", name, o.Exit, exit)
			}
		}
	}
	runChecked(t, machine(t), new(Image), 2*time.Minute, check, commands...)
}
