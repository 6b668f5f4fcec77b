package host_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestMain lets the test binary run as its own helper: as a task that sleeps in
// a cgroup and obeys commands, or as a Tenon process that a test kills.
func TestMain(m *testing.M) {
	switch os.Getenv("TENON_TEST_ROLE") {
	case "task":
		obey(os.Stdin, os.Stdout)
		return
	case "sleeper":
		sleeper()
		return
	case "victim":
		victim()
		return
	case "freezer":
		freezer()
		return
	case "contained":
		contained()
		return
	case "isolator":
		isolator()
		return
	}
	os.Exit(m.Run())
}

// obey is the main function of a task. It reads one command per line: "alloc
// BYTES" allocates memory that cannot be reclaimed, "burn TIME" works until the
// process has used that CPU time, "fork" starts a child that ends at once, "read BYTES DEVICE" reads without the page cache, and "cache
// BYTES FILE" reads through it. It answers "ok", or the number of the error.
func obey(in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		verb, argument, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch verb {
		case "alloc":
			size := 0
			_, _ = fmt.Sscan(argument, &size)
			var b []byte
			b, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err == nil {
				err = unix.Mlock(b) // also touches every page
			}
		case "burn":
			var spent time.Duration
			spent, err = time.ParseDuration(argument)
			for now := (unix.Timespec{}); err == nil && time.Duration(now.Nano()) < spent; {
				err = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now)
			}
		case "fork":
			err = fork()
		case "read":
			err = readDisk(argument)
		case "cache":
			err = readCached(argument)
		}
		var errno syscall.Errno
		if errors.As(err, &errno) {
			fmt.Fprintln(out, int(errno))
		} else {
			fmt.Fprintln(out, "ok")
		}
	}
}

// fork starts a child that ends at once, and waits for it. It does not use the
// Go runtime, which would start threads, because these threads would count as
// tasks.
func fork() error {
	pid, _, errno := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		for {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	_, err := syscall.Wait4(int(pid), nil, 0, nil)
	return err
}

// A helper is a running task.
type helper struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	over    chan struct{} // closed when the process has ended
}

// machine is the real node. It has the methods that the conformance suite
// needs.
type machine struct {
	*host.Host
	tree *cgroup.Tree

	mu    sync.Mutex
	tasks map[int]*helper
}

// open returns the real node, with a journal of its own. It needs root and a
// writable cgroup tree. If the machine lacks these, the test is skipped, or
// fails with TENON_TEST_STRICT.
func open(t *testing.T, disposable bool) *machine {
	t.Helper()
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		skip(t, "no cgroups: %v", err)
	}
	if os.Geteuid() != 0 {
		skip(t, "writing to the cgroup tree needs root")
	}
	h, err := host.Open(host.Options{Tree: tree, JournalDir: t.TempDir(), Disposable: disposable, Try: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	m := &machine{Host: h, tree: tree, tasks: map[int]*helper{}}
	probe := node.CgroupPath(groupName("probe"))
	if err := h.MakeGroup(probe); err != nil {
		skip(t, "the cgroup tree cannot be written: %v", err)
	}
	if err := h.RemoveGroup(probe); err != nil {
		t.Fatal(err)
	}
	return m
}

func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("TENON_TEST_STRICT") != "" {
		t.Fatalf("this machine was promised to be able to: "+format, args...)
	}
	t.Skipf(format, args...)
}

// groupName names a cgroup that no other test uses.
func groupName(what string) string { return fmt.Sprintf("tenon-test-%d-%s", os.Getpid(), what) }

func (m *machine) Start(p node.CgroupPath, memory unit.Bytes) (int, error) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "TENON_TEST_ROLE=task", "GOMAXPROCS=1")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := c.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	// Pdeathsig kills the process when the thread that started it ends, and the
	// host ends threads. So a locked thread starts the process and waits.
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- c.Start()
		<-over
	}()
	if err := <-started; err != nil {
		close(over)
		return 0, err
	}
	pid := c.Process.Pid
	m.mu.Lock()
	m.tasks[pid] = &helper{c, in, bufio.NewScanner(out), over}
	m.mu.Unlock()
	if err := m.tell(pid, "hello"); err != nil {
		return 0, err
	}
	if p != "" {
		if err := m.Attach(p, pid); err != nil {
			_ = m.Stop(pid)
			return 0, err
		}
	}
	if memory > 0 {
		if err := m.tell(pid, fmt.Sprintf("alloc %d", memory)); err != nil {
			_ = m.Stop(pid)
			return 0, fmt.Errorf("allocate %v in %s: %w", memory, p, err)
		}
	}
	return pid, nil
}

// tell sends a command to a task. It returns the error with which the task
// answers.
func (m *machine) tell(pid int, line string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.tasks[pid]
	if h == nil {
		return fmt.Errorf("no task %d", pid)
	}
	if _, err := fmt.Fprintln(h.in, line); err != nil {
		return err
	}
	if !h.out.Scan() {
		return fmt.Errorf("task %d died of %q", pid, line)
	}
	if answer := h.out.Text(); answer != "ok" {
		number := 0
		_, _ = fmt.Sscan(answer, &number)
		return syscall.Errno(number)
	}
	return nil
}

func (m *machine) Fork(pid int) error { return m.tell(pid, "fork") }

func (m *machine) Stop(pid int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.tasks[pid]
	if h == nil {
		return fmt.Errorf("no task %d", pid)
	}
	delete(m.tasks, pid)
	_ = h.command.Process.Kill()
	_ = h.command.Wait() // the process was killed as intended
	close(h.over)
	return nil
}

// file returns the path of a kernel file in the hierarchy to which it belongs.
func (m *machine) file(p node.CgroupPath, name string) (string, error) {
	controller, _, _ := strings.Cut(name, ".")
	switch controller {
	case "cgroup":
		controller = "cpu"
	case "blkio":
		controller = "io"
	}
	dir, err := m.tree.Dir(controller, string(p))
	return filepath.Join(dir, name), err
}

func (m *machine) ReadFile(p node.CgroupPath, name string) (string, error) {
	path, err := m.file(p, name)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

func (m *machine) WriteFile(p node.CgroupPath, name, text string) error {
	path, err := m.file(p, name)
	if err != nil {
		return err
	}
	// os.WriteFile cannot be used: it would create or truncate the file, and
	// that must never happen to a file of a cgroup.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
