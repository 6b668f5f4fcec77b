package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/launch"
	"tenon.sh/tenon/test/turn"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tenon": main})
}

// documents are the published documents whose experiments run, one for each commit, and
// in make soak all of them.
var documents = []string{"colocation", "kernel-qos", "scheduling", "concurrency"}

// TestCommandLine runs testdata/*.txtar. The condition [root] is true if the
// test can create cgroups, and [turn:DOCUMENT] if the experiment of this document runs. The scripts have four additional commands: group,
// newgroup, nobody and waitfor.
func TestCommandLine(t *testing.T) {
	deadline, _ := t.Deadline()
	docs, err := filepath.Abs(filepath.Join("..", "..", "docs"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	testscript.RunT(oneByOne{t}, testscript.Params{
		Deadline: deadline,
		Dir:      "testdata",
		Setup: func(env *testscript.Env) error {
			// The names of groups are unique to this run, because another test
			// of Tenon may run on the machine.
			id := fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano()%1e6)
			env.Setenv("ID", id)
			env.Setenv("STATE", env.WorkDir+"/state")
			env.Setenv("XDG_RUNTIME_DIR", env.WorkDir)
			env.Setenv("DOCS", docs)
			env.Setenv("SERVER", server.URL+"/")
			if tree, err := cgroup.Detect("/proc"); err == nil {
				env.Defer(func() { // removes the groups of a failed script
					_ = tree.RemoveAll(launch.BestEffortGroup + "/" + id)
					if left, err := tree.Children(launch.BestEffortGroup); err == nil && len(left) == 0 {
						_ = tree.Remove(launch.BestEffortGroup)
					}
				})
				if dir, err := tree.Dir("cpu", ""); err == nil {
					env.Setenv("CPU", dir)
				}
			}
			return nil
		},
		Condition: func(name string) (bool, error) {
			if document, is := strings.CutPrefix(name, "turn:"); is && slices.Contains(documents, document) {
				return turn.Runs(len(documents), documents, document), nil
			}
			if name != "root" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			why := canMakeGroups()
			if why != nil && os.Getenv("TENON_TEST_STRICT") == "1" {
				return false, fmt.Errorf("strict: the tests that make cgroups must run: %w", why)
			}
			return why == nil, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"group":    group,
			"newgroup": newGroup,
			"nobody":   runUnprivileged,
			"waitfor":  waitFor,
		},
	})
}

// oneByOne runs the scripts one after the other, because they share the cgroup
// tenon-be.
type oneByOne struct{ *testing.T }

func (t oneByOne) Parallel()     {}
func (t oneByOne) Verbose() bool { return testing.Verbose() }
func (t oneByOne) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(oneByOne{t}) })
}

// canMakeGroups creates a group, and removes it.
func canMakeGroups() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		return err
	}
	probe := fmt.Sprintf("tenon-test-probe-%d", os.Getpid())
	return errors.Join(tree.Make(probe), tree.Remove(probe))
}

// group implements the script command group. `group PATH` checks that the
// cgroup exists in some hierarchy. `group PATH FILE VALUE` checks that the file
// has the value. In VALUE, "A|B" means A on cgroup v1 and B on v2.
func group(ts *testscript.TestScript, neg bool, args []string) {
	tree, err := cgroup.Detect("/proc")
	ts.Check(err)
	if len(args) == 1 {
		if tree.Exists(args[0]) == neg {
			ts.Fatalf("cgroup %s: exists=%v", args[0], !neg)
		}
		return
	}
	controller, _, _ := strings.Cut(args[1], ".")
	dir, err := tree.Dir(controller, args[0])
	ts.Check(err)
	text, err := os.ReadFile(filepath.Join(dir, args[1]))
	ts.Check(err)
	if got := strings.TrimSpace(string(text)); (got == args[2]) == neg {
		ts.Fatalf("%s/%s is %q, want %q", dir, args[1], got, args[2])
	}
}

// newGroup implements the script command newgroup PATH. It creates a cgroup,
// and removes it at the end of the script.
func newGroup(ts *testscript.TestScript, _ bool, args []string) {
	tree, err := cgroup.Detect("/proc")
	ts.Check(err)
	ts.Check(tree.Make(args[0]))
	ts.Defer(func() { ts.Check(tree.RemoveAll(args[0])) })
}

// runUnprivileged implements the script command nobody PROGRAM ARGS. It runs a
// program as an unprivileged user. Other users cannot read the directories of
// the test, so it runs a copy of the program.
func runUnprivileged(ts *testscript.TestScript, neg bool, args []string) {
	const uid = 65534
	dir, err := os.MkdirTemp("/tmp", "tenon-nobody-")
	ts.Check(err)
	ts.Defer(func() { os.RemoveAll(dir) })
	ts.Check(os.Chmod(dir, 0o755))
	self, err := os.Executable()
	ts.Check(err)
	copied := filepath.Join(dir, "tenon")
	ts.Check(copyFile(copied, self))
	if args[0] == "tenon" {
		args[0] = copied
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Args[0] = filepath.Base(args[0])
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	if err := cmd.Run(); (err != nil) != neg {
		ts.Fatalf("as nobody: %v", err)
	}
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// waitFor implements the script command waitfor. `waitfor FILE` waits until the
// file is not empty. `waitfor text FILE TEXT` waits until the file contains the
// text. `waitfor gone PIDFILE` waits until the process has ended. `waitfor
// alive PIDFILE` does not wait, but checks that the process runs. The timeout
// is long, because best-effort work on a busy machine is slow.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	pid := func() int {
		n, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[1])))
		ts.Check(err)
		return n
	}
	done := func() bool {
		info, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil && info.Size() > 0
	}
	switch args[0] {
	case "text":
		done = func() bool {
			text, err := os.ReadFile(ts.MkAbs(args[1]))
			return err == nil && strings.Contains(string(text), args[2])
		}
	case "gone":
		p := pid()
		done = func() bool { return syscall.Kill(p, 0) != nil }
	case "alive":
		p := pid()
		if err := syscall.Kill(p, 0); err != nil {
			ts.Fatalf("process %d: %v", p, err)
		}
		ts.Defer(func() { syscall.Kill(p, syscall.SIGKILL) }) // in case the script fails
		return
	}
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("timed out: waitfor %v", args)
		}
	}
}
