package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Groups creates cgroups and moves processes into them. A restore after a crash
// undoes both actions. *host.Host implements Groups.
type Groups interface {
	Attach(p node.CgroupPath, pid int) error
	Spawned(pid int) error
	Reaped(pid int) error
}

// A Child describes a process to start.
type Child struct {
	Name  string // for error messages
	Argv  []string
	Group node.CgroupPath // empty: the lab's own cgroup
	CPUs  unit.CPUSet
	Nice  int
	// Session starts the program as a login does: in its own POSIX session
	// (setsid(2)), and in the root cgroups instead of Group. In the root
	// cgroups no weight of a cgroup applies, and the kernel's autogroups divide
	// the CPU among sessions (sched(7)).
	Session   bool
	SchedIdle bool // the policy SCHED_IDLE
	// User is the user of the process. If it is set, the working directory is
	// the root directory, because another user may not enter that of the lab.
	// The process has an IPC namespace of its own, so that the kernel removes
	// its shared memory together with it.
	User   *syscall.Credential
	Stdin  io.Reader
	Stdout io.Writer // nil: discarded
	// Before is called when the process is in its cgroup but has not executed
	// the program yet. It may be nil.
	Before func(pid int) error
	stderr io.Writer // also gets the standard error; nil: only the end is kept, for error messages
}

// gate starts the program only after the lab has moved the process into its
// cgroup. It waits for a line on file descriptor 3. If the lab dies before
// that, the read fails and the program never starts.
const gate = `read -r _ <&3 && exec 3<&- && exec "$@"`

// A Process is a running child. The kernel kills all children when the lab dies
// (Pdeathsig). Each child has its own process group, so that Ctrl-C reaches
// only the lab, which then ends the children in order.
type Process struct {
	Name string
	PID  int

	cmd     *exec.Cmd
	in      Groups
	session bool
	adopted []int // descendants in the journal
	Stderr  *tail
	done    chan struct{} // closed after the process has been waited for
	waitErr error
}

// Start starts c in its cgroup and on its CPUs. The program executes no
// instruction outside of this cgroup or on other CPUs.
func Start(in Groups, c Child) (*Process, error) {
	fail := func(err error) (*Process, error) { return nil, fmt.Errorf("start %s: %w", c.Name, err) }
	r, w, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	defer w.Close()
	p := &Process{Name: c.Name, in: in, Stderr: &tail{}, done: make(chan struct{})}
	p.cmd = exec.Command("/bin/sh", append([]string{"-c", gate, "sh"}, c.Argv...)...)
	p.cmd.ExtraFiles = []*os.File{r}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = c.Stdin, c.Stdout, p.Stderr
	if c.stderr != nil {
		p.cmd.Stderr = io.MultiWriter(p.Stderr, c.stderr)
	}
	// Wait must return even if a grandchild keeps a pipe open.
	p.cmd.WaitDelay = time.Second
	p.session = c.Session
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !c.Session, Setsid: c.Session, Pdeathsig: syscall.SIGKILL, Credential: c.User}
	if c.User != nil {
		p.cmd.Dir = "/"
		p.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWIPC
	}
	started, entered := make(chan error), make(chan struct{})
	go p.keep(started, entered)
	err = <-started
	r.Close()
	if err != nil {
		return fail(err)
	}
	p.PID = p.cmd.Process.Pid
	err = p.enter(c)
	if err == nil && c.Before != nil {
		err = c.Before(p.PID)
	}
	close(entered)
	if err == nil {
		_, err = w.Write([]byte("\n"))
	}
	if err != nil {
		w.Close() // the gate reads end of file and exits
		p.Kill()
		return fail(err)
	}
	return p, nil
}

// keep starts the process and waits for its end. It locks its thread until the
// process has ended. Threads of a Go program may end at any time. The kernel
// sends the parent-death signal (prctl(2), PR_SET_PDEATHSIG) when the thread
// that forked a process ends.
func (p *Process) keep(started chan<- error, entered <-chan struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	<-entered // the kernel does not reuse a PID before the process has been waited for
	// Kill the processes that the program has left in its process group. Until
	// Wait is called for the program, no other group can have this ID.
	if p.awaitExit() == nil {
		_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	}
	p.waitErr = p.cmd.Wait()
	close(p.done)
}

// awaitExit waits until the process has ended, but does not reap it.
func (p *Process) awaitExit() error {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (p *Process) enter(c Child) error {
	if err := p.in.Spawned(p.PID); err != nil {
		return err
	}
	if c.Session || c.Group != "" {
		group := c.Group
		if c.Session {
			group = "" // the root
		}
		if err := p.in.Attach(group, p.PID); err != nil {
			return err
		}
	}
	if !c.CPUs.Empty() {
		if err := task.SetAffinity(p.PID, c.CPUs); err != nil {
			return err
		}
	}
	if c.Nice != 0 {
		// A lower nice value is optional. If the privilege for it is missing,
		// the run continues.
		if err := unix.Setpriority(unix.PRIO_PROCESS, p.PID, c.Nice); err != nil && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("set nice %d: %w", c.Nice, err)
		}
	}
	if c.SchedIdle {
		return task.SetIdle(p.PID)
	}
	return nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the end of the process and returns how it ended, with the last
// line of its standard error. It returns nil if the process ended with status
// 0.
func (p *Process) Err() error {
	<-p.done
	if p.waitErr == nil || errors.Is(p.waitErr, exec.ErrWaitDelay) {
		return nil
	}
	return fmt.Errorf("%s ended: %w%s", p.Name, p.waitErr, QuoteOutput(p.Stderr.Bytes()))
}

// Used returns the CPU time of the process, and of those children for which it
// has waited. The process must have ended.
func (p *Process) Used() time.Duration {
	<-p.done
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Stop sends sig to the process and its process group. If the process has not
// ended after grace, it kills them. When the process ends, all other processes
// of its group are killed.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) {
	if !p.HasEnded() {
		_ = unix.Kill(-p.PID, sig)
	}
	select {
	case <-p.done:
	case <-time.After(grace):
	}
	p.Kill()
}

// Kill kills the process and its process group, and removes the process from
// the journal.
func (p *Process) Kill() {
	// The ID of the process group is valid until the leader is reaped. Before
	// that, the method keep kills the group.
	if !p.HasEnded() {
		_ = unix.Kill(-p.PID, unix.SIGKILL)
	}
	if p.session {
		p.killSession()
	}
	<-p.done
	for _, pid := range append(p.adopted, p.PID) {
		_ = p.in.Reaped(pid)
	}
}

// tail keeps the end of the data that is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 8 << 10

// Write keeps the end of b.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = bytes.Clone(t.buf[over:])
	}
	return len(b), nil
}

// Bytes returns the kept part.
func (t *tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.buf)
}

// QuoteOutput returns the last line of a program's output in a form that can be
// added to an error message. A line may also end with CR: ffmpeg ends lines of
// progress so, and thousands of them may come before the next LF.
func QuoteOutput(out []byte) string {
	text := strings.TrimSpace(string(out))
	if text == "" {
		return ""
	}
	return fmt.Sprintf(": %.500s", strings.TrimSpace(text[strings.LastIndexAny(text, "\r\n")+1:]))
}

// EndedEarly returns an error for a process that should still run, but ended
// with status 0.
func (p *Process) EndedEarly() error {
	if p.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s ended%s", p.Name, QuoteOutput(p.Stderr.Bytes()))
}
