package site

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

// A Groups value makes cgroups and puts processes into them, so that all of
// it can be undone after a crash. The real one is *host.Host.
type Groups interface {
	Attach(p node.CgroupPath, pid int) error
	Spawned(pid int) error
	Reaped(pid int) error
}

// A Child describes a process to start.
type Child struct {
	Name   string // for errors
	Argv   []string
	Group  node.CgroupPath // "": the lab's own
	CPUs   unit.CPUSet
	Nice   int
	Stdin  io.Reader
	Stdout io.Writer // nil: discarded
	stderr io.Writer // gets what errors quote the end of, too; nil: only that
}

// gate lets the program run only after the lab has put it into its group: it
// waits for a line on descriptor 3. If the lab dies first, the read fails and
// the program never starts.
const gate = `read -r _ <&3 && exec 3<&- && exec "$@"`

// A Process is a running child. Children die with the lab (Pdeathsig); they
// are in process groups of their own, so that Ctrl-C reaches the lab alone and
// it ends them in order.
type Process struct {
	Name string
	PID  int

	cmd     *exec.Cmd
	in      Groups
	Stderr  *tail
	done    chan struct{} // closed when it has been waited for
	waitErr error
}

// Start starts c inside its cgroup, on its CPUs. No instruction of the
// program runs anywhere else.
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
	// A grandchild that keeps our pipes open must not keep Wait from ending.
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, entered := make(chan error), make(chan struct{})
	go p.keep(started, entered)
	err = <-started
	r.Close()
	if err != nil {
		return fail(err)
	}
	p.PID = p.cmd.Process.Pid
	err = p.enter(c)
	close(entered)
	if err == nil {
		_, err = w.Write([]byte("\n"))
	}
	if err != nil {
		w.Close() // the gate reads the end and exits
		p.Kill()
		return fail(err)
	}
	return p, nil
}

// keep starts the process and waits for its end. The kernel counts the end of
// the thread that forked a process as the death of its parent (prctl(2),
// PR_SET_PDEATHSIG), and threads of a Go program end: so keep locks its thread
// until then.
func (p *Process) keep(started chan<- error, entered <-chan struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	<-entered // its number is its own until it has been waited for
	p.waitErr = p.cmd.Wait()
	close(p.done)
}

func (p *Process) enter(c Child) error {
	if err := p.in.Spawned(p.PID); err != nil {
		return err
	}
	if c.Group != "" {
		if err := p.in.Attach(c.Group, p.PID); err != nil {
			return err
		}
	}
	if !c.CPUs.Empty() {
		if err := task.SetAffinity(p.PID, c.CPUs); err != nil {
			return err
		}
	}
	if c.Nice != 0 {
		// A better nice value is optional: without the privilege the run
		// continues.
		if err := unix.Setpriority(unix.PRIO_PROCESS, p.PID, c.Nice); err != nil && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("set nice %d: %w", c.Nice, err)
		}
	}
	return nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended, with the last line it complained; nil if it
// ended well. It waits for the end.
func (p *Process) Err() error {
	<-p.done
	if p.waitErr == nil || errors.Is(p.waitErr, exec.ErrWaitDelay) {
		return nil
	}
	return fmt.Errorf("%s ended: %w%s", p.Name, p.waitErr, QuoteOutput(p.Stderr.Bytes()))
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Stop asks the process to end with sig, and kills it if it has not ended
// after grace.
func (p *Process) Stop(sig syscall.Signal, grace time.Duration) {
	if !p.Ended() {
		_ = p.cmd.Process.Signal(sig)
	}
	select {
	case <-p.done:
	case <-time.After(grace):
	}
	p.Kill()
}

// Kill ends the process and its process group, and forgets it.
func (p *Process) Kill() {
	// The group id is ours as long as its leader is not reaped; after that
	// only the leader's own children could still hold it.
	if !p.Ended() {
		_ = unix.Kill(-p.PID, unix.SIGKILL)
	}
	<-p.done
	_ = p.in.Reaped(p.PID)
}

// tail keeps the last part of what is written to it.
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

// Bytes returns what was kept.
func (t *tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.buf)
}

// QuoteOutput is the last line of a program's complaint, as the end of an
// error message.
func QuoteOutput(out []byte) string {
	text := strings.TrimSpace(string(out))
	if text == "" {
		return ""
	}
	lines := strings.Split(text, "\n")
	return ": " + strings.TrimSpace(lines[len(lines)-1])
}

// EndedEarly is the error of a process that ended well when it should not
// have ended at all.
func (p *Process) EndedEarly() error {
	if p.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s ended%s", p.Name, QuoteOutput(p.Stderr.Bytes()))
}
