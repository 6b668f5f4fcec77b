package rqdelay

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/unit"
)

// roleVar is an environment variable. If it is set, this test binary runs as a
// helper process of a test.
const roleVar = "TENON_PROBE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "spin": // uses a whole CPU
		for {
			threadTime()
		}
	case "pulse": // uses two thirds of a CPU
		pulse(2*time.Millisecond, time.Millisecond)
	case "pingpong":
		pingpong()
	}
	os.Exit(m.Run())
}

// pulse works and sleeps in turn. It makes system calls directly, because
// threads of Go's scheduler would compete with it.
func pulse(work, nap time.Duration) {
	runtime.LockOSThread()
	rest := unix.NsecToTimespec(int64(nap))
	for {
		for begin := threadTime(); threadTime()-begin < work; {
		}
		_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&rest)), 0, 0)
	}
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}

// skipLacking skips a test because a kernel feature or a permission is missing.
func skipLacking(t testing.TB, why error) {
	t.Helper()
	if os.Getenv("TENON_TEST_STRICT") == "1" {
		t.Fatalf("TENON_TEST_STRICT is set, and the kernel cannot be tested: %v", why)
	}
	t.Skipf("needs root, cgroups and BPF: %v", why)
}

// A stage is a cgroup that exists for one test.
type stage struct {
	testing.TB
	tree *cgroup.Tree
	path string
	cpus unit.CPUSet
}

var stagesMade atomic.Int64

func newStage(t testing.TB) stage {
	t.Helper()
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		skipLacking(t, err)
	}
	s := stage{TB: t, tree: tree, path: fmt.Sprintf("tenon-test-probe-%d-%d", os.Getpid(), stagesMade.Add(1))}
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
	if s.cpus, err = tree.EffectiveCPUs(s.path); err != nil {
		skipLacking(t, err)
	}
	return s
}

// narrow restricts the groups that are made after this call to a single CPU. It
// returns this CPU.
func (s *stage) narrow() unit.CPU {
	s.Helper()
	last := unit.CPU(-1)
	for c := range s.cpus.All() {
		last = c
	}
	s.cpus = unit.CPUSetOf(last)
	if err := s.tree.WriteCPUs(s.path, s.cpus); err != nil {
		s.Fatal(err)
	}
	return last
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

// start runs this test binary in a group until the test ends.
func (s stage) start(role, group string) (pid int) {
	s.Helper()
	cmd := s.command(role)
	s.launch(cmd)
	if err := s.tree.Attach(group, cmd.Process.Pid); err != nil {
		s.Fatal(err)
	}
	return cmd.Process.Pid
}

func (s stage) command(role string) *exec.Cmd {
	s.Helper()
	self, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	cmd := exec.Command(self)
	// Go preempts goroutines by signals, which would interrupt raw system
	// calls.
	cmd.Env = append(os.Environ(), roleVar+"="+role, "GODEBUG=asyncpreemptoff=1")
	return cmd
}

// launch starts a process, which runs until the test ends, also if this process
// is killed.
func (s stage) launch(cmd *exec.Cmd) {
	s.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// Pdeathsig kills the process when the thread that started it ends. A test
	// may end its thread, so a locked thread starts the process and waits.
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
}

// TestAProcessOutlivesTheThreadOfItsTest starts a process from a thread that
// ends.
func TestAProcessOutlivesTheThreadOfItsTest(t *testing.T) {
	s := stage{TB: t}
	cmd := s.command("spin")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	tid := make(chan int)
	var once func()
	once = func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends
		if unix.Gettid() == os.Getpid() {
			go once() // Go never ends the first thread
			return
		}
		s.launch(cmd)
		tid <- unix.Gettid()
	}
	go once()
	thread := <-tid
	for exists := true; exists; time.Sleep(time.Millisecond) {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		exists = err == nil
	}
	_ = out.(*os.File).SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the process ended together with the thread: %v", err)
	}
}

// open opens a probe, which is closed at the end of the test.
func (s stage) open(alarm Alarm) *Probe {
	s.Helper()
	p, err := Open(Options{CgroupVersion: s.tree.VersionOf("cpu"), Alarm: alarm})
	if errors.Is(err, os.ErrPermission) || errors.Is(err, ErrUnsupported) {
		skipLacking(s, err)
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := p.Close(); err != nil {
			s.Error(err)
		}
	})
	return p
}

func (s stage) track(p *Probe, slot Slot, id uint64, class Class) {
	s.Helper()
	if err := p.Track(slot, id, class); err != nil {
		s.Fatal(err)
	}
}

func (s stage) read(p *Probe) Reading {
	s.Helper()
	r, err := p.Read()
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// schedStat adds up the kernel's counters of all threads of the processes.
func (s stage) schedStat(pids ...int) (sum proc.SchedStat) {
	s.Helper()
	for _, pid := range pids {
		threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
		if err != nil {
			s.Fatal(err)
		}
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				s.Fatal(err)
			}
			stat, err := proc.Default().SchedStat(pid, tid)
			if errors.Is(err, proc.ErrGone) {
				continue
			}
			if err != nil {
				s.Fatal(err)
			}
			sum.Run += stat.Run
			sum.Delay += stat.Delay
			sum.Slices += stat.Slices
		}
	}
	return sum
}

// take reads the kernel's counters and those of the program while the processes
// are stopped, so that the values are from the same moment.
func (s stage) take(p *Probe, pids ...int) (proc.SchedStat, Reading) {
	s.Helper()
	signal := func(sig syscall.Signal) {
		for _, pid := range pids {
			if err := syscall.Kill(pid, sig); err != nil {
				s.Fatal(err)
			}
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	for range 500 {
		time.Sleep(10 * time.Millisecond)
		stat, r := s.schedStat(pids...), s.read(p)
		if s.schedStat(pids...) == stat { // otherwise a thread was still running
			return stat, r
		}
	}
	s.Fatalf("processes %v do not stop", pids)
	panic("not reached")
}

// isNear reports whether two amounts differ by at most the given share of the
// second one (want).
func isNear(got, want time.Duration, share float64) bool {
	return (got - want).Abs() <= time.Duration(share*float64(want))
}
