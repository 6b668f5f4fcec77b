package scx

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/unit"
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
	if os.Getenv("TENON_TEST_STRICT") == "1" && !errors.Is(why, ErrUnsupported) {
		t.Fatalf("TENON_TEST_STRICT is set, and the kernel cannot be tested: %v", why)
	}
	t.Skipf("needs root, cgroups and sched_ext: %v", why)
}

// A stage is a cgroup that exists for one test.
type stage struct {
	testing.TB
	tree *cgroup.Tree
	path string
	cpus []CPU
}

var stagesMade atomic.Int64

func newStage(t testing.TB) stage {
	t.Helper()
	if testing.Short() {
		t.Skip("loads the scheduler, which -short excludes")
	}
	if _, err := readLoaded(sysfs); err != nil {
		skipLacking(t, err)
	}
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		skipLacking(t, err)
	}
	s := stage{TB: t, tree: tree, path: fmt.Sprintf("tenon-test-scx-%d-%d", os.Getpid(), stagesMade.Add(1)), cpus: topology(t)}
	err = tree.Make(s.path)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		skipLacking(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.RemoveAll(s.path); err != nil {
			t.Error(err)
		}
	})
	return s
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
	o.CgroupVersion, o.Topology = s.tree.VersionOf("cpu"), s.cpus
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

// group makes a group in the stage and returns its path and its id.
func (s stage) group(name string) (path string, id uint64) {
	s.Helper()
	path = s.path + "/" + name
	if err := s.tree.Make(path); err != nil {
		s.Fatal(err)
	}
	id, err := s.tree.Inode(path)
	if err != nil {
		s.Fatal(err)
	}
	return path, id
}

// start runs this test binary in a group until the test ends. If CPUs are
// given, the process may run only on these.
func (s stage) start(role, group string, policy task.Policy, on ...unit.CPU) (pid int) {
	s.Helper()
	self, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command(self)
	// Go preempts goroutines by signals, which would interrupt raw system
	// calls.
	cmd.Env = append(os.Environ(), roleVar+"="+role, "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Pdeathsig kills the process when the thread that started it ends. Load
	// ends threads, so the process is started by a locked thread.
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-over
	}()
	s.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		close(over)
	})
	if err := <-started; err != nil {
		s.Fatal(err)
	}
	pid = cmd.Process.Pid
	if err := s.tree.Attach(group, pid); err != nil {
		s.Fatal(err)
	}
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
