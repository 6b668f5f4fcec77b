package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// GateArg is the first argument that makes a program a gate: a copy of Tenon
// that waits until it stands in its cgroup and only then becomes the command.
// A program that launches commands hands its arguments to Gate before
// anything else.
const GateArg = "__tenon_gate"

// A gated is a command behind its gate: started, in no cgroup of ours yet.
type gated struct {
	process *os.Process
	open    *os.File // one byte lets the command through; closing ends it
	report  *os.File // the error of the exec, or nothing
}

// A gateOrder is the list of changes that the gate makes to itself before it
// becomes the command.
type gateOrder struct {
	// Idle gives up the CPU and the disk to everybody else: SCHED_IDLE, nice
	// 19 and the idle I/O class, all that an unprivileged user can give.
	Idle bool
	Path string
	Args []string
}

// startGate starts the gate. program is the argv that starts this program.
// The pipes keep their numbers in the child: fixed numbers could take the
// place of descriptors that the caller hands to the command.
func startGate(program []string, order gateOrder) (*gated, error) {
	var open, report [2]int
	if err := unix.Pipe2(open[:], 0); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	if err := unix.Pipe2(report[:], 0); err != nil {
		unix.Close(open[0])
		unix.Close(open[1])
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	unix.CloseOnExec(open[1])
	unix.CloseOnExec(report[0])

	argv := append([]string{}, program...)
	argv = append(argv, GateArg, strconv.Itoa(open[0]), strconv.Itoa(report[1]), strconv.FormatBool(order.Idle), order.Path)
	argv = append(argv, order.Args...)
	process, err := os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	unix.Close(open[0])
	unix.Close(report[1])
	g := &gated{process: process, open: os.NewFile(uintptr(open[1]), "gate"), report: os.NewFile(uintptr(report[0]), "gate report")}
	if err != nil {
		g.close()
		return nil, fmt.Errorf("start the gate: %w", err)
	}
	return g, nil
}

// A baseline is the CPU time that the gate had used when it became the command,
// which inherits its counters.
type baseline struct {
	thread Delay         // of the thread that lives on
	cpu    time.Duration // of the whole process
}

// release lets the command start, waits until it runs, and returns the CPU time
// that the gate had used until then. The error is a *StartError if the kernel
// refused the command.
func (g *gated) release() (baseline, error) {
	defer g.close()
	if _, err := g.open.Write([]byte{1}); err != nil {
		return baseline{}, fmt.Errorf("open the gate: %w", err)
	}
	text, err := io.ReadAll(g.report) // until exec closes the pipe
	if err != nil {
		return baseline{}, fmt.Errorf("read the gate's report: %w", err)
	}
	var base baseline
	var errno syscall.Errno
	if n, _ := fmt.Sscan(string(text), &base.thread.Seen, &base.thread.Waited, &base.cpu, &errno); n < 3 {
		return base, fmt.Errorf("the gate ended before it became the command (report %q)", text)
	}
	if errno != 0 {
		return base, &StartError{Err: errno}
	}
	return base, nil
}

// refuse ends the gate before it became the command.
func (g *gated) refuse() {
	g.close()
	_, _ = g.process.Wait()
}

func (g *gated) close() {
	g.open.Close()
	g.report.Close()
}

// Gate becomes the command once the launcher says so, and never returns. args
// are the arguments after GateArg.
func Gate(args []string) {
	// The attributes below belong to a thread; exec keeps those of the thread
	// that calls it.
	runtime.LockOSThread()
	if len(args) < 5 {
		fmt.Fprintf(os.Stderr, "tenon: %s is for Tenon's own use\n", GateArg)
		os.Exit(2)
	}
	open, err1 := strconv.Atoi(args[0])
	report, err2 := strconv.Atoi(args[1])
	idle, err3 := strconv.ParseBool(args[2])
	if err := errors.Join(err1, err2, err3); err != nil {
		fmt.Fprintf(os.Stderr, "tenon: %s is for Tenon's own use: %v\n", GateArg, err)
		os.Exit(2)
	}
	unix.CloseOnExec(open)
	unix.CloseOnExec(report)
	to := os.NewFile(uintptr(report), "gate report")
	if n, _ := os.NewFile(uintptr(open), "gate").Read(make([]byte, 1)); n == 0 {
		os.Exit(125) // the launcher gave up or died: the command must not run
	}
	if idle {
		idleSelf()
	}
	path, argv := args[3], args[4:]
	fmt.Fprintln(to, counters())
	err := syscall.Exec(path, argv, os.Environ())
	if errors.Is(err, syscall.ENOEXEC) {
		// A script without an interpreter line: do as execvp(3) does.
		err = syscall.Exec("/bin/sh", append([]string{"sh", path}, argv[1:]...), os.Environ())
	}
	var errno syscall.Errno
	errors.As(err, &errno)
	fmt.Fprintln(to, int(errno))
	os.Exit(125)
}

// counters returns the calling thread's time on a CPU and its time ready and
// waiting, from /proc/thread-self/schedstat, and the CPU time of the process,
// all in ns. Values that the kernel does not show are 0.
func counters() string {
	run, delay := "0", "0"
	text, _ := os.ReadFile("/proc/thread-self/schedstat")
	if f := strings.Fields(string(text)); len(f) == 3 {
		run, delay = f[0], f[1]
	}
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return fmt.Sprint(run, " ", delay, " ", u.Utime.Nano()+u.Stime.Nano())
}

// A StartError says that the command itself could not be started.
type StartError struct {
	Name string
	Err  error
}

// Error says what could not be run and why.
func (e *StartError) Error() string {
	if e.Status() == 127 {
		return fmt.Sprintf("run %q: no such command: check the name and PATH", e.Name)
	}
	return fmt.Sprintf("run %q: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Status is the exit status that shells use for this error: 127 if there is
// no such command, 126 if it cannot be executed.
func (e *StartError) Status() int {
	if errors.Is(e.Err, exec.ErrNotFound) || errors.Is(e.Err, os.ErrNotExist) {
		return 127
	}
	return 126
}

// find resolves the command as a shell would.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", &StartError{Name: name, Err: err}
	}
	return path, nil
}
