package scripts_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// output runs a script and returns its lines, and whether it succeeded.
func output(t *testing.T, env []string, script string, args ...string) (lines []string, ok bool) {
	t.Helper()
	cmd := exec.Command("./"+script, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), err == nil
}

// TestALongStageSaysThatItGoesOn runs a stage of some seconds with a pulse of one. It
// also checks the line with the result, which make test counts.
func TestALongStageSaysThatItGoesOn(t *testing.T) {
	results := filepath.Join(t.TempDir(), "results")
	env := []string{"STAGE_PULSE=1", "STAGE_RESULTS=" + results}
	for _, c := range []struct {
		command string
		ok      bool
		pulse   bool
		result  string
	}{
		{"sleep 4", true, true, "^long 0 [0-9]+$"},
		{"exit 3", false, false, "^long 3 [0-9]+$"},
	} {
		_ = os.Remove(results)
		lines, ok := output(t, env, "stage.sh", "long", "1m", "sh", "-c", c.command)
		pulse := slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "-- long: ") })
		end := lines[len(lines)-1]
		if ok != c.ok || c.pulse && !pulse || lines[0] != "== long (budget 1m)" || !strings.HasPrefix(end, "== long: ") || slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "Terminated") }) {
			t.Errorf("%s: ok %v, pulse %v:\n%s", c.command, ok, pulse, strings.Join(lines, "\n"))
		}
		if text, err := os.ReadFile(results); err != nil || !regexp.MustCompile(c.result).MatchString(strings.TrimSpace(string(text))) {
			t.Errorf("%s: the result is %q, %v", c.command, text, err)
		}
	}
}

// TestMakeTestSaysWhatItDoes compares the stages that make test announces with those in
// the Makefile, and reads the line with its result.
func TestMakeTestSaysWhatItDoes(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	budgets := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t@?\$\(STAGE\) (\S+) (\d+)m `).FindAllStringSubmatch(string(makefile), -1) {
		budgets[m[1]] = m[2]
	}
	env := []string{"TENON_CACHE=" + t.TempDir()}
	lines, ok := output(t, env, "test.sh", "scripts/stage.sh", "vet", "1m", "true")
	if end := lines[len(lines)-1]; !ok || !strings.HasPrefix(end, "make test: ok, all stages in ") {
		t.Errorf("ok %v, the last line is %q", ok, end)
	}
	announced := map[string]string{}
	row := regexp.MustCompile(`^(\S+) +\d+ +\d+ +(\d+)  \S`)
	for _, line := range lines {
		if m := row.FindStringSubmatch(line); m != nil {
			announced[m[1]] = m[2]
		}
		if len(line) > 100 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if len(budgets) < 10 || len(announced) != len(budgets) {
		t.Errorf("the Makefile has %d stages, and make test announces %d:\n%s", len(budgets), len(announced), strings.Join(lines, "\n"))
	}
	for name, most := range budgets {
		if announced[name] != most {
			t.Errorf("the stage %s may take %s minutes, and make test says %q", name, most, announced[name])
		}
	}
	lines, ok = output(t, env, "test.sh", "scripts/stage.sh", "vet", "1m", "false")
	if end := lines[len(lines)-1]; ok || !strings.HasPrefix(end, "make test: FAILED after ") || !strings.Contains(end, ": vet (status 1, ") {
		t.Errorf("ok %v, the last line is %q", ok, end)
	}
}

// TestCtrlCEndsAStage sends SIGINT to the process group of make test, as a terminal does
// to the group in its foreground. The stage must end, with the processes that it started,
// and no further stage may begin.
func TestCtrlCEndsAStage(t *testing.T) {
	stages := filepath.Join(t.TempDir(), "Makefile")
	// The process of the first stage says that it runs. It would last longer than the test.
	text := "all:\n\tscripts/stage.sh vet 2m sh -c 'echo begun && exec sleep 60'\n\tscripts/stage.sh user 2m echo too far\n"
	if err := os.WriteFile(stages, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("env", "--default-signal=INT", "./test.sh", "make", "-s", "-f", stages, "all")
	cmd.Env = append(os.Environ(), "TENON_CACHE="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = os.Stderr
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
	lines := bufio.NewReader(said)
	for line := ""; line != "begun\n"; {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("the stage does not begin: %v", err)
		}
	}
	// The pipe ends with the last process that has it: those of the stage, too.
	begun := time.Now()
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || time.Since(begun) > 40*time.Second {
		t.Errorf("make test ends %v after Ctrl-C: %v", time.Since(begun), err)
	}
	if got := string(rest); !strings.Contains(got, "\nmake test: FAILED after ") || !regexp.MustCompile(`: vet \(status 1(30|43), `).MatchString(got) || strings.Contains(got, "too far") {
		t.Errorf("after Ctrl-C it says:\n%s", got)
	}
}
