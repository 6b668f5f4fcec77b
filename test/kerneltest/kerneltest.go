// Package kerneltest gives a test of the kernel a cgroup of its own, with processes in it.
// The processes are the test program itself, in another role.
package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
)

// A Stage is a cgroup that exists for one test.
type Stage struct {
	testing.TB
	Tree *cgroup.Tree
	Path string
}

var made atomic.Int64

// NewStage makes a stage. The name tells the cgroups of several packages apart. lacks
// skips a test whose kernel lacks something (see [SkipLacking]).
func NewStage(t testing.TB, name string, lacks func(t testing.TB, why error)) Stage {
	t.Helper()
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		lacks(t, err)
	}
	s := Stage{TB: t, Tree: tree, Path: fmt.Sprintf("tenon-test-%s-%d-%d", name, os.Getpid(), made.Add(1))}
	err = tree.Make(s.Path)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		lacks(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.RemoveAll(s.Path); err != nil {
			t.Error(err)
		}
	})
	return s
}

// SkipLacking skips a test that needs a feature of the kernel, such as BPF, beside root
// and cgroups. With TENON_TEST_STRICT=1, which says that the kernel has all, it fails
// the test instead.
func SkipLacking(t testing.TB, needs string, why error) {
	t.Helper()
	if os.Getenv("TENON_TEST_STRICT") == "1" {
		t.Fatalf("TENON_TEST_STRICT is set, and the kernel cannot be tested: %v", why)
	}
	t.Skipf("needs root, cgroups and %s: %v", needs, why)
}

// CgroupVersion returns the version of the hierarchy with the cpu controller.
func (s Stage) CgroupVersion() int { return s.Tree.VersionOf("cpu") }

// Group makes a group in the stage and returns its path and its id.
func (s Stage) Group(name string) (path string, id uint64) {
	s.Helper()
	path = s.Path + "/" + name
	if err := s.Tree.Make(path); err != nil {
		s.Fatal(err)
	}
	id, err := s.Tree.Inode(path)
	if err != nil {
		s.Fatal(err)
	}
	return path, id
}

// Start starts a command of [Command] in a group, as [Launch] does.
func (s Stage) Start(group string, cmd *exec.Cmd) (pid int) {
	s.Helper()
	Launch(s, cmd)
	if err := s.Tree.Attach(group, cmd.Process.Pid); err != nil {
		s.Fatal(err)
	}
	return cmd.Process.Pid
}

// Command returns a command that runs this test program with an environment variable,
// which names a role. TestMain must know the role.
func Command(variable, role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	// Go preempts goroutines by signals, which would interrupt raw system calls.
	cmd.Env = append(os.Environ(), variable+"="+role, "GODEBUG=asyncpreemptoff=1")
	return cmd
}

// Launch starts a process, which runs until the test ends, also if this process is
// killed.
func Launch(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	LaunchUntil(t, cmd, syscall.SIGKILL)
}

// LaunchUntil is Launch for a process that gets this signal if this process is killed. With
// SIGTERM, a program can end the processes that it has started itself.
func LaunchUntil(t testing.TB, cmd *exec.Cmd, death syscall.Signal) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: death}
	// Pdeathsig kills the process when the thread that started it ends. A test may end
	// its thread, so a locked thread starts the process and waits.
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-over
	}()
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		close(over)
	})
	if err := <-started; err != nil {
		t.Fatal(err)
	}
}
