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

// GateArg is the first argument of a gate: a copy of Tenon that waits until it
// is in its cgroup, and then executes the command. A program that launches
// commands must first look at its own arguments. If the first one is GateArg,
// it must call Gate.
const GateArg = "__tenon_gate"

// A gateProcess is a gate that runs but has not executed its command yet.
type gateProcess struct {
	process *os.Process
	open    *os.File // one byte starts the command; closing it ends the gate
	report  *os.File // receives the error of exec, or is closed by exec
}

// A gateOrder holds the command of a gate. It also holds what the gate changes
// about itself before it executes the command.
type gateOrder struct {
	// Idle sets SCHED_IDLE, nice 19 and the idle I/O class. This is the lowest
	// priority that an unprivileged user can set.
	Idle bool
	Path string
	Args []string
}

// startGate starts a gate. program is the beginning of the command line that
// starts this program again. The gate's pipes have the same descriptor numbers
// as here. Other numbers could collide with descriptors that the caller passes
// on to the command.
func startGate(program []string, order gateOrder) (*gateProcess, error) {
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
	g := &gateProcess{process: process, open: os.NewFile(uintptr(open[1]), "gate"), report: os.NewFile(uintptr(report[0]), "gate report")}
	if err != nil {
		g.close()
		return nil, fmt.Errorf("start the gate: %w", err)
	}
	return g, nil
}

// A baseline holds the counters of the gate when it executes the command. The
// command inherits the counters, so these values must be subtracted.
type baseline struct {
	thread Delay         // counters of the thread that calls exec
	cpu    time.Duration // CPU time of the whole process
}

// release lets the gate execute the command, and waits until the command runs.
// It returns the gate's counters. If the kernel refused to execute the command,
// it returns a *StartError.
func (g *gateProcess) release() (baseline, error) {
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
	if n, _ := fmt.Sscan(string(text), &base.thread.Seen, &base.thread.Waited, &base.cpu, &errno); n < 3 { //nolint:errcheck // the number of values tells
		return base, fmt.Errorf("the gate ended before it became the command (report %q)", text)
	}
	if errno != 0 {
		return base, &StartError{Err: errno}
	}
	return base, nil
}

// refuse ends the gate without executing the command.
func (g *gateProcess) refuse() {
	g.close()
	_, _ = g.process.Wait()
}

func (g *gateProcess) close() {
	g.open.Close()
	g.report.Close()
}

// Gate waits for the launcher's permission, and then executes the command. It
// never returns. args are the arguments after GateArg.
func Gate(args []string) {
	// The gate sets attributes of a thread, and exec keeps those of the thread
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
	if n, _ := os.NewFile(uintptr(open), "gate").Read(make([]byte, 1)); n == 0 { //nolint:errcheck // nothing was read, whatever the cause
		os.Exit(125) // the launcher gave up or died, and the command must not run
	}
	if idle {
		idleSelf()
	}
	path, argv := args[3], args[4:]
	fmt.Fprintln(to, counters())
	err := syscall.Exec(path, argv, os.Environ())
	if errors.Is(err, syscall.ENOEXEC) {
		// As in execvp(3), a shell runs a script without an interpreter line.
		err = syscall.Exec("/bin/sh", append([]string{"sh", path}, argv[1:]...), os.Environ())
	}
	var errno syscall.Errno
	errors.As(err, &errno)
	fmt.Fprintln(to, int(errno))
	os.Exit(125)
}

// counters returns three times in ns as text: how long the calling thread ran,
// how long it waited for a CPU (both from /proc/thread-self/schedstat), and the
// CPU time of the process. A time that the kernel does not show is 0.
func counters() string {
	run, delay := "0", "0"
	text, _ := os.ReadFile("/proc/thread-self/schedstat") //nolint:errcheck // a time that the kernel does not show is 0, and the coverage says so
	if f := strings.Fields(string(text)); len(f) == 3 {
		run, delay = f[0], f[1]
	}
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return fmt.Sprint(run, " ", delay, " ", u.Utime.Nano()+u.Stime.Nano())
}

// A StartError means that the command itself could not be started.
type StartError struct {
	Name string
	Err  error
}

// Error names the command and the cause.
func (e *StartError) Error() string {
	if e.Status() == 127 {
		return fmt.Sprintf("run %q: no such command: check the name and PATH", e.Name)
	}
	return fmt.Sprintf("run %q: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Status returns the exit status that a shell would return: 127 if the command
// does not exist, 126 if it cannot be executed.
func (e *StartError) Status() int {
	if errors.Is(e.Err, exec.ErrNotFound) || errors.Is(e.Err, os.ErrNotExist) {
		return 127
	}
	return 126
}

// find returns the path of a command's program. It searches as a shell does.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", &StartError{Name: name, Err: err}
	}
	return path, nil
}
