package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
)

// costSpan is the time for which the benchmark measures a tenond.
const costSpan = 20 * time.Second

// costRounds is the number of times that each tenond is measured.
const costRounds = 5

// BenchmarkAgentCost prints the cost of tenond with 100 and 1000 workloads at
// the default period. Each workload is a cgroup with one process, and a quarter
// of them are services. The cost is the CPU time as a share of one CPU, the
// private memory, how long the parts of a tick take, and the allocations of a
// tick. Run it with -benchtime 1x. TENON_TEST_AGENTS, such as "before=DIR
// after=DIR", names folders that each contain a tenon and a tenond. Then the
// benchmark measures these in turn, with the same cgroups.
func BenchmarkAgentCost(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: it makes cgroups")
	}
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		b.Skip(err)
	}
	agents := strings.Fields(os.Getenv("TENON_TEST_AGENTS"))
	if len(agents) == 0 {
		dir := b.TempDir()
		if text, err := exec.Command("go", "build", "-o", dir+"/", "tenon.sh/tenon/cmd/tenon", "tenon.sh/tenon/cmd/tenond").CombinedOutput(); err != nil {
			b.Fatalf("build: %v\n%s", err, text)
		}
		agents = []string{"this=" + dir}
	}
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("workloads=%d", n), func(b *testing.B) {
			root := fmt.Sprintf("tenon-test-cost-%d", os.Getpid())
			plantJobs(b, tree, root, n)
			for round := range costRounds {
				for _, agent := range agents {
					name, dir, _ := strings.Cut(agent, "=")
					b.Run(fmt.Sprintf("round=%d/%s", round, name), func(b *testing.B) {
						for b.Loop() {
							keep(b, dir, root)
						}
					})
				}
			}
		})
	}
}

// plantJobs makes n cgroups. Each contains one sleeping process.
func plantJobs(b *testing.B, tree *cgroup.Tree, root string, n int) {
	b.Helper()
	var sleepers []*exec.Cmd
	start, stop := startFromOneThread()
	b.Cleanup(func() {
		for _, s := range sleepers {
			_ = s.Process.Kill()
			_ = s.Wait()
		}
		stop()
		if err := tree.RemoveAll(root); err != nil {
			b.Error(err)
		}
	})
	for i := range n {
		side := "be"
		if i%4 == 0 {
			side = "ls"
		}
		group := fmt.Sprintf("%s/%s/job-%d", root, side, i)
		if err := tree.Make(group); err != nil {
			b.Fatal(err)
		}
		s := exec.Command("sleep", "600")
		if err := start(s); err != nil {
			b.Fatal(err)
		}
		sleepers = append(sleepers, s)
		if err := tree.Attach(group, s.Process.Pid); err != nil {
			b.Fatal(err)
		}
	}
}

// startFromOneThread returns a function that starts processes, which the kernel
// kills when this process ends. The kernel sends their signal (Pdeathsig) when
// the thread that started them ends, so one thread starts them all, and lives
// until the caller calls stop.
func startFromOneThread() (start func(*exec.Cmd) error, stop func()) {
	commands, started := make(chan *exec.Cmd), make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for cmd := range commands {
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			started <- cmd.Start()
		}
	}()
	return func(cmd *exec.Cmd) error {
		commands <- cmd
		return <-started
	}, func() { close(commands) }
}

// keep runs the tenond in the folder dir for costSpan. This tenond manages the
// cgroups. keep reports the cost.
func keep(b *testing.B, dir, root string) {
	b.Helper()
	state := b.TempDir()
	config := filepath.Join(state, "tenon.yaml")
	text := fmt.Sprintf(`apiVersion: tenon.sh/v1alpha1
kind: NodeConfig
rules:
- {name: services, class: LS, cgroups: ["%[1]s/ls/*"], requests: {cpu: 10m, memory: 1Mi}}
- {name: jobs, class: BE, cgroups: ["%[1]s/be/*"]}
resource-threshold-config: {enable: true, cpuSuppressThresholdPercent: 65}
resource-qos-config: {policies: {cpuIsolation: strongest}, beClass: {cpuQOS: {enable: true}}}
`, root)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	address := freeAddress(b)
	cmd := exec.Command(filepath.Join(dir, "tenond"), "--config", config, "--state-dir", state, "--machine-lock", filepath.Join(state, "machine.lock"), "--metrics", address)
	log, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		restore := exec.Command(filepath.Join(dir, "tenon"), "--state-dir", state, "restore")
		if text, err := restore.CombinedOutput(); err != nil {
			b.Errorf("restore: %v\n%s", err, text)
		}
	}()
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "msg=ready") {
				ready <- true
			}
		}
		_, _ = io.Copy(io.Discard, log)
	}()
	select {
	case <-ready:
	case <-time.After(30 * time.Second):
		b.Fatal("tenond is not ready after 30 s")
	}
	time.Sleep(2 * time.Second)  // skip the first ticks
	turned := scrape(b, address) // a scrape does not include itself
	before := cpuTime(b, cmd.Process.Pid)
	time.Sleep(costSpan)
	used := cpuTime(b, cmd.Process.Pid) - before
	b.ReportMetric(100*used.Seconds()/costSpan.Seconds(), "CPU-%")
	b.ReportMetric(float64(rssAnon(b, cmd.Process.Pid))/(1<<20), "RssAnon-MiB")
	b.ReportMetric(float64(rssAnon(b, watchdogPID(b, state)))/(1<<20), "watchdog-RssAnon-MiB")
	reportTurns(b, turned, scrape(b, address))
}

// cpuTime returns the CPU time of a process, with that of its threads that have ended.
func cpuTime(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	clock := int32(^pid<<3 | 2) // as clock_getcpuclockid(3) makes it
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// watchdogPID returns the PID of the watchdog.
func watchdogPID(b *testing.B, state string) int {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(state, "watchdog.lock"))
	if err != nil {
		b.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		b.Fatal(err)
	}
	return pid
}

// rssAnon returns RssAnon of /proc/PID/status, in bytes.
func rssAnon(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "RssAnon:"); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib << 10
		}
	}
	b.Fatalf("no RssAnon of process %d", pid)
	return 0
}
