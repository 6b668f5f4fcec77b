package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// TestMain lets the test binary run as its own gate.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == GateArg {
		Gate(os.Args[2:])
	}
	if os.Getenv(launcherEnv) != "" {
		os.Unsetenv(launcherEnv)
		launchArguments()
	}
	os.Exit(m.Run())
}

func TestGateHoldsTheCommandBack(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	g, err := startGate(os.Args[:1], gateOrder{Path: "/bin/sh", Args: []string{"sh", "-c", "echo $$ >" + mark}})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran before the gate was opened")
	}
	if _, err := g.release(); err != nil {
		t.Fatal(err)
	}
	g.process.Wait()
	text, err := os.ReadFile(mark)
	if want := fmt.Sprintln(g.process.Pid); err != nil || string(text) != want {
		t.Errorf("the command wrote %q (%v), want its process id %q: the gate must become the command", text, err, want)
	}
}

func TestCommandNeverRunsWithoutItsLauncher(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	g, err := startGate(os.Args[:1], gateOrder{Path: "/bin/sh", Args: []string{"sh", "-c", "echo >" + mark}})
	if err != nil {
		t.Fatal(err)
	}
	g.close() // as the kernel does when the launcher dies
	state, err := g.process.Wait()
	if err != nil || state.Success() {
		t.Errorf("the gate ended with %v (%v), want a failure", state, err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran although its launcher was gone")
	}
}

// runScript runs a shell script without a cgroup, and returns its output.
func runScript(t *testing.T, class node.Class, script string) (Result, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	r, err := yielding(t).Run(context.Background(), Command{Class: class, Args: []string{"sh", "-c", "exec >" + out + "\n" + script}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(text)
}

func yielding(t *testing.T) *Launcher {
	return &Launcher{FS: proc.Default(), Program: os.Args[:1], Yield: true, Note: func(s string) { t.Log(s) }}
}

func TestStatusPassesThrough(t *testing.T) {
	tests := map[string]struct {
		script string
		status int
		signal string
	}{
		"success":           {"exit 0", 0, ""},
		"failure":           {"exit 3", 3, ""},
		"highest status":    {"exit 255", 255, ""},
		"killed":            {"kill -KILL $$", 137, "SIGKILL"},
		"terminated":        {"kill -TERM $$", 143, "SIGTERM"},
		"a child is killed": {"sh -c 'kill -TERM $$' 2>/dev/null; exit 7", 7, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, _ := runScript(t, node.LS, tc.script)
			if r.Status != tc.status || r.Signal != tc.signal {
				t.Errorf("status %d %q, want %d %q", r.Status, r.Signal, tc.status, tc.signal)
			}
		})
	}
}

func TestWhatCannotRunSaysSoAsShellsDo(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"plain": "echo", "lost": "#!/no/such/interpreter\n"} {
		mode := os.FileMode(0o755)
		if name == "plain" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		command string
		status  int
	}{
		"no such command":     {"no-such-command-here", 127},
		"no such file":        {dir + "/none", 127},
		"not executable":      {dir + "/plain", 126},
		"a directory":         {dir, 126},
		"interpreter missing": {dir + "/lost", 127},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := yielding(t).Run(context.Background(), Command{Class: node.LS, Args: []string{tc.command}})
			var refused *StartError
			if !errors.As(err, &refused) {
				t.Fatalf("error %v, want a StartError", err)
			}
			if refused.Status() != tc.status || !strings.Contains(err.Error(), tc.command) {
				t.Errorf("%v: status %d, want %d and the name", err, refused.Status(), tc.status)
			}
		})
	}
}

func TestScriptWithoutInterpreterLineRuns(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("echo \"$1\" >"+dir+"/out\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := yielding(t).Run(context.Background(), Command{Class: node.LS, Args: []string{script, "word"}}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(dir + "/out"); err != nil || string(text) != "word\n" {
		t.Errorf("the script wrote %q (%v)", text, err)
	}
}

func TestCommandInheritsWhatTenonWasGiven(t *testing.T) {
	// The Go runtime raises its own soft limit of open files. So it could use
	// descriptor numbers that belong to the command.
	shell := func(script string) string {
		_, out := runScript(t, node.LS, script)
		return strings.TrimSpace(out)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if out := shell("ls /proc/$$/fd | wc -l"); out == "" || len(out) > 2 {
		t.Errorf("the command has %s descriptors open", out)
	}
	// A test runner may itself ignore signals. The command must ignore the same
	// signals as an ordinary child does.
	const signals = "sed -n 's/^SigIgn:\\s*//p; s/^SigBlk:\\s*//p' /proc/self/status | sort -u"
	plain, err := exec.Command("sh", "-c", signals).Output()
	if err != nil {
		t.Fatal(err)
	}
	if out := shell(signals); out != strings.TrimSpace(string(plain)) {
		t.Errorf("the command ignores or blocks signals %s, a plain child %s", out, plain)
	}
}

func TestBestEffortWithoutCgroupYieldsByItself(t *testing.T) {
	_, out := runScript(t, node.BE, "cat /proc/$$/stat; ionice -p $$ 2>/dev/null || echo idle")
	line, class, _ := strings.Cut(strings.TrimSpace(out), "\n")
	f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	// These are the fields 19 and 41 of proc_pid_stat(5). f begins with field
	// 3.
	if nice, policy := f[19-3], f[41-3]; nice != "19" || policy != fmt.Sprint(unix.SCHED_IDLE) {
		t.Errorf("nice %s, policy %s: want 19 and SCHED_IDLE (%d)", nice, policy, unix.SCHED_IDLE)
	}
	if class != "idle" {
		t.Errorf("I/O class %q, want idle", class)
	}
}

func TestSignalsReachTheCommandOnce(t *testing.T) {
	dir := t.TempDir()
	script := fmt.Sprintf("trap 'echo usr1 >>%[1]s/log' USR1; trap 'echo term >>%[1]s/log; exit 9' TERM\n"+
		"echo >%[1]s/ready; while :; do sleep 0.02; done", dir)
	go func() {
		for range 500 {
			if _, err := os.Stat(dir + "/ready"); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		time.Sleep(200 * time.Millisecond)
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	r, err := yielding(t).Run(context.Background(), Command{Class: node.LS, Args: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	log, _ := os.ReadFile(dir + "/log")
	if r.Status != 9 || string(log) != "usr1\nterm\n" {
		t.Errorf("status %d, log %q: want 9 and each signal once", r.Status, log)
	}
}
