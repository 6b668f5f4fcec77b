package testbed

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// A Freezer freezes and thaws a cgroup. A process of its own thaws the cgroup when
// the lab ends, however it ends: that process waits for the end of a pipe whose
// other end only the lab has, and the kernel closes it even after SIGKILL. Frozen
// processes of cgroup v1 do not even die before they are thawed.
type Freezer struct {
	tree  *cgroup.Tree
	group node.CgroupPath
	pid   int
	pipe  *os.File
	ended chan struct{} // closed when the process that thaws has ended
	err   error         // of that process
}

// NewFreezer starts the process that thaws the group.
func (s *Site) NewFreezer(group node.CgroupPath) (*Freezer, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the process that thaws %s: %w", group, err)
	}
	defer r.Close()
	argv := s.Child("thaw", string(group))
	cmd := exec.Command(argv[0], argv[1:]...)
	said := &tail{}
	cmd.Stdin, cmd.Stderr = r, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only the lab
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start the process that thaws %s: %w", group, err)
	}
	f := &Freezer{tree: s.Tree, group: group, pid: cmd.Process.Pid, pipe: w, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		if err := cmd.Wait(); err != nil {
			f.err = fmt.Errorf("the process that thaws %s: %w%s", group, err, QuoteOutput(said.Bytes()))
		}
	}()
	return f, nil
}

// PID returns the process that thaws the group.
func (f *Freezer) PID() int { return f.pid }

// Freeze freezes or thaws the group. It freezes nothing if the process that would
// thaw the group has ended.
func (f *Freezer) Freeze(frozen bool) error {
	if frozen {
		select {
		case <-f.ended:
			return fmt.Errorf("freeze %s: %w", f.group, cmp.Or(f.err, errors.New("the process that thaws it has ended")))
		default:
		}
	}
	return f.tree.Freeze(string(f.group), frozen)
}

// Close thaws the group and ends the process.
func (f *Freezer) Close() error {
	err := f.tree.Freeze(string(f.group), false)
	if errors.Is(err, cgroup.ErrGone) {
		err = nil
	}
	f.pipe.Close()
	<-f.ended
	return errors.Join(err, f.err)
}

// Thaw waits until in ends, and then thaws the group. Signals that end the lab do
// not end it: the end of the lab does.
func Thaw(in io.Reader, group node.CgroupPath) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("wait for the end of the lab: %w", err)
	}
	tree, err := cgroup.Detect(proc.Default().Proc)
	if err != nil {
		return err
	}
	err = tree.Freeze(string(group), false)
	if errors.Is(err, cgroup.ErrGone) {
		return nil
	}
	return err
}
