package scx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/test/kerneltest"
)

// roleVar is an environment variable. If it is set, this test binary runs as a
// helper process of a test.
const roleVar = "TENON_SCX_TEST_ROLE"

func TestMain(m *testing.M) {
	role, argument, _ := strings.Cut(os.Getenv(roleVar), " ")
	switch role {
	case "spin": // uses a whole CPU
		runtime.LockOSThread()
		for spun := 0; ; spun++ {
			if spun < 0 { // never happens in practice
				return
			}
		}
	case "load":
		loadForEver()
	case "pulse": // alternates between work and sleep; the arguments are microseconds
		pulse(argument)
	}
	os.Exit(m.Run())
}

// pulse makes system calls directly, because Go's scheduler would wake up other
// threads, too.
func pulse(argument string) {
	runtime.LockOSThread()
	var work, nap int64
	if _, err := fmt.Sscan(argument, &work, &nap); err != nil {
		panic(err)
	}
	for {
		for begin := threadTime(); threadTime()-begin < time.Duration(work)*time.Microsecond; {
		}
		ts := unix.NsecToTimespec(nap * 1000)
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil)
	}
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// skipLacking skips a test because a kernel feature or a permission is missing.
// In a virtual machine whose kernel must have the feature, it fails the test
// instead.
func skipLacking(t testing.TB, why error) {
	t.Helper()
	if errors.Is(why, ErrUnsupported) {
		t.Skipf("needs sched_ext: %v", why)
	}
	kerneltest.SkipLacking(t, "sched_ext", why)
}

// A stage is a cgroup that exists for one test.
type stage struct {
	kerneltest.Stage
	cpus []CPU
}

func newStage(t testing.TB) stage {
	t.Helper()
	if testing.Short() {
		t.Skip("loads the scheduler, which -short excludes")
	}
	if _, err := readLoaded(sysfs); err != nil {
		skipLacking(t, err)
	}
	return stage{kerneltest.NewStage(t, "scx", skipLacking), topology(t)}
}

// topology returns the CPUs of this machine.
func topology(t testing.TB) []CPU {
	t.Helper()
	cpus, err := readTopology()
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}

func readTopology() ([]CPU, error) {
	const dir = "/sys/devices/system/cpu"
	var failed error
	list := func(file ...string) unit.CPUSet {
		data, err := os.ReadFile(filepath.Join(file...))
		var set unit.CPUSet
		if err == nil {
			set, err = unit.ParseCPUSet(strings.TrimSpace(string(data)))
		}
		failed = errors.Join(failed, err)
		return set
	}
	first := func(set unit.CPUSet) int {
		for c := range set.All() {
			return int(c)
		}
		return -1
	}
	var cpus []CPU
	for id := range list(dir, "online").All() {
		one := filepath.Join(dir, "cpu"+strconv.Itoa(int(id)))
		core := list(one, "topology/core_cpus_list")
		c := CPU{ID: id, Core: first(core)}
		for other := range core.All() {
			if other < id {
				c.Thread++
			}
		}
		if _, err := os.Stat(filepath.Join(one, "cache/index3")); err == nil {
			c.LLC = first(list(one, "cache/index3/shared_cpu_list"))
		}
		if nodes, _ := filepath.Glob(filepath.Join(one, "node*")); len(nodes) == 1 {
			c.Node, _ = strconv.Atoi(strings.TrimPrefix(filepath.Base(nodes[0]), "node"))
		}
		cpus = append(cpus, c)
	}
	return cpus, failed
}

// load loads the scheduler until the end of the test.
func (s stage) load(o Options) *Scheduler {
	s.Helper()
	o.CgroupVersion, o.Topology = s.CgroupVersion(), s.cpus
	sched, err := Load(o)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, ErrUnsupported) {
		skipLacking(s, err)
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := sched.Close(); err != nil {
			s.Error(err)
		}
	})
	return sched
}

func (s stage) status(sched *Scheduler) Status {
	s.Helper()
	st, err := sched.Status()
	if err != nil {
		s.Fatal(err)
	}
	return st
}

// start runs this test binary in a group until the test ends. If CPUs are
// given, the process may run only on these.
func (s stage) start(role, group string, policy task.Policy, on ...unit.CPU) (pid int) {
	s.Helper()
	cmd := kerneltest.Command(roleVar, role)
	cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	pid = s.Start(group, cmd)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		s.Fatal(err)
	}
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if len(on) > 0 {
			if err := task.SetAffinity(tid, unit.CPUSetOf(on...)); err != nil && !errors.Is(err, task.ErrGone) {
				s.Fatal(err)
			}
		}
		if policy == task.Normal {
			continue
		}
		if err := task.SetPolicy(tid, policy); err != nil && !errors.Is(err, task.ErrGone) {
			s.Fatal(err)
		}
	}
	return pid
}

// cpuTime returns the CPU time of a process.
func (s stage) cpuTime(pid int) time.Duration {
	s.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		s.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
