package rqdelay

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/test/kerneltest"
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
	kerneltest.SkipLacking(t, "BPF", why)
}

// A stage is a cgroup that exists for one test, with the CPUs of its groups.
type stage struct {
	kerneltest.Stage
	cpus unit.CPUSet
}

func newStage(t testing.TB) stage {
	t.Helper()
	s := stage{Stage: kerneltest.NewStage(t, "probe", skipLacking)}
	var err error
	if s.cpus, err = s.Tree.EffectiveCPUs(s.Path); err != nil {
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
	if err := s.Tree.WriteCPUs(s.Path, s.cpus); err != nil {
		s.Fatal(err)
	}
	return last
}

// start runs this test binary in a group until the test ends.
func (s stage) start(role, group string) (pid int) {
	s.Helper()
	return s.Start(group, kerneltest.Command(roleVar, role))
}

// open opens a probe, which is closed at the end of the test.
func (s stage) open(alarm Alarm) *Probe {
	s.Helper()
	p, err := Open(Options{CgroupVersion: s.CgroupVersion(), Alarm: alarm})
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
