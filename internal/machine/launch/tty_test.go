package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// launcherEnv makes the test binary launch the command in its arguments.
	// rootEnv names the parent of the command's cgroup. If rootEnv is not set,
	// no cgroup is created.
	launcherEnv = "TENON_TEST_LAUNCH"
	rootEnv     = "TENON_TEST_ROOT"
	stateEnv    = "TENON_TEST_STATE"
)

// launchArguments is the main function of the test binary as a launcher.
func launchArguments() {
	l := &Launcher{FS: proc.Default(), Program: os.Args[:1], Yield: true, Note: func(string) {}}
	c := Command{Class: node.LS, Args: os.Args[1:]}
	if root := os.Getenv(rootEnv); root != "" {
		tree, err := cgroup.Detect("/proc")
		if err == nil {
			l, err = newLauncher(tree, node.CgroupPath(root), os.Getenv(stateEnv))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
		c.Class, c.Name = node.BE, "job"
	}
	r, err := l.Run(context.Background(), c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	os.Exit(r.Status)
}

// startLauncher starts the launcher of a shell script in a new process.
func startLauncher(t *testing.T, script string, attr *syscall.SysProcAttr, stdin *os.File, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "sh", "-c", script)
	cmd.Env = append(append(os.Environ(), launcherEnv+"=1"), env...)
	cmd.SysProcAttr, cmd.Stderr = attr, os.Stderr
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

func awaitText(t *testing.T, file string) string {
	t.Helper()
	for range 1000 {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			return strings.TrimSpace(string(text))
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s did not appear", file)
	return ""
}

// terminal opens a pseudo terminal.
func terminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a pseudo terminal: %v", err)
	}
	t.Cleanup(func() { keyboard.Close() })
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs a pseudo terminal: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	return keyboard, screen
}

func TestCtrlCReachesTheCommandOnce(t *testing.T) {
	keyboard, screen := terminal(t)
	dir := t.TempDir()
	script := fmt.Sprintf("trap 'echo int >>%[1]s/log' INT; trap 'exit 9' TERM; echo $$ >%[1]s/ready; while :; do sleep 0.05; done", dir)
	cmd := startLauncher(t, script, &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}, screen)
	awaitText(t, dir+"/ready")
	time.Sleep(50 * time.Millisecond)
	if _, err := keyboard.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	awaitText(t, dir+"/log")
	time.Sleep(300 * time.Millisecond) // time for a second signal, which must not come
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if log := awaitText(t, dir+"/log"); log != "int" || cmd.ProcessState.ExitCode() != 9 {
		t.Errorf("the command got %q and ended with %d: want one int and 9", log, cmd.ProcessState.ExitCode())
	}
}

func TestInterruptFromAProcessReachesTheCommand(t *testing.T) {
	dir := t.TempDir()
	script := fmt.Sprintf("trap 'exit 8' INT; echo $$ >%s/ready; while :; do sleep 0.02; done", dir)
	cmd := startLauncher(t, script, &syscall.SysProcAttr{Setpgid: true}, nil)
	awaitText(t, dir+"/ready")
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 8 {
		t.Errorf("ended with %d, want 8", got)
	}
}

func TestStopAndContinueReachBoth(t *testing.T) {
	dir := t.TempDir()
	script := fmt.Sprintf("trap 'exit 9' TERM; echo $$ >%s/ready; while :; do sleep 0.05; done", dir)
	cmd := startLauncher(t, script, &syscall.SysProcAttr{Setpgid: true}, nil)
	pid, err := strconv.Atoi(awaitText(t, dir+"/ready"))
	if err != nil {
		t.Fatal(err)
	}
	stopped := func(pid int) bool {
		text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		_, rest, _ := strings.Cut(string(text), ") ")
		return strings.HasPrefix(rest, "T")
	}
	await := func(want bool) {
		t.Helper()
		for range 500 {
			if stopped(pid) == want && stopped(cmd.Process.Pid) == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("stopped: command %v, launcher %v; want both %v", stopped(pid), stopped(cmd.Process.Pid), want)
	}
	cmd.Process.Signal(syscall.SIGTSTP)
	await(true)
	cmd.Process.Signal(syscall.SIGCONT)
	await(false)
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 9 {
		t.Errorf("ended with %d, want 9", got)
	}
}
