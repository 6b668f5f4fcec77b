package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/loop"
	"tenon.sh/tenon/internal/decide/isolation"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A bench is a launcher on the real kernel. Its root is a cgroup of its own.
type bench struct {
	*Launcher
	t     *testing.T
	dir   string
	mutex sync.Mutex
	notes []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	tree, err := cgroup.Detect("/proc")
	root := node.CgroupPath(fmt.Sprintf("tenon-test-%d-%d", os.Getpid(), time.Now().UnixNano()%1e9))
	if err == nil {
		err = tree.Make(string(root))
	}
	if err != nil {
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatalf("strict: this test must run: %v", err)
		}
		t.Skipf("needs the right to make cgroups: %v", err)
	}
	t.Cleanup(func() {
		if err := tree.RemoveAll(string(root)); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	b := &bench{t: t, dir: t.TempDir()}
	b.Launcher = b.launcher(tree, root)
	return b
}

// launcher returns a launcher that has its own Host, as each tenon run has.
func (b *bench) launcher(tree *cgroup.Tree, root node.CgroupPath) *Launcher {
	l, err := newLauncher(tree, root, b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { l.Host.Close() })
	l.Note = func(s string) {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.notes = append(b.notes, s)
	}
	return l
}

func newLauncher(tree *cgroup.Tree, root node.CgroupPath, state string) (*Launcher, error) {
	h, err := host.Open(host.Options{Tree: tree, FS: proc.Default(), JournalDir: state, Try: true})
	a := &loop.Agent{Host: h, Config: policy.Config{CPUQOS: isolation.Config{Enable: true}}}
	return &Launcher{
		Host: h, Tree: tree, FS: proc.Default(), Root: root, StateDir: state, Program: os.Args[:1],
		Tick: func(ctx context.Context) error { _, err := a.Step(ctx); return err },
		Note: func(string) {},
	}, err
}

func (b *bench) noted() int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return len(b.notes)
}

func (b *bench) run(c Command) (Result, error) {
	return b.launcher(b.Tree, b.Root).Run(context.Background(), c)
}

func script(name string, class node.Class, text string) Command {
	return Command{Name: name, Class: class, Args: []string{"sh", "-c", text}}
}

// listGroups lists the groups that exist below the root of the bench.
func (b *bench) listGroups() string {
	names, err := b.Tree.Children(string(b.Root))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func (b *bench) await(file string) string {
	b.t.Helper()
	for range 6000 { // best-effort work on a busy machine may be slow
		text, err := os.ReadFile(filepath.Join(b.dir, file))
		if err == nil && len(text) > 0 {
			return strings.TrimSpace(string(text))
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatalf("%s did not appear", file)
	return ""
}

func TestCommandRunsInItsGroupAndLeavesNone(t *testing.T) {
	b := newBench(t)
	be := b.Root.Join(BestEffortGroup)
	r, err := b.run(script("job", node.BE, "cat /proc/self/cgroup >"+b.dir+"/out; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.await("out"), string(be)+"/job") {
		t.Errorf("the command was in %s", b.await("out"))
	}
	if r.Status != 3 || r.CPUSeconds <= 0 || r.WallSeconds <= 0 || !r.ThrottledSeconds.Known() {
		t.Errorf("result %+v: want status 3, CPU, wall and throttled time", r)
	}
	if left := b.listGroups(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}

func TestBEIsIdleWhereItMeetsOthersBeforeItRuns(t *testing.T) {
	b := newBench(t)
	if !b.Host.Capabilities().Has(node.FeatureCPUIdle) {
		t.Skip("this kernel has no cpu.idle")
	}
	dir, err := b.Tree.Dir("cpu", string(b.Root.Join(BestEffortGroup)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.run(script("job", node.BE, "cat "+dir+"/cpu.idle >"+b.dir+"/out")); err != nil {
		t.Fatal(err)
	}
	if got := b.await("out"); got != "1" {
		t.Errorf("the command read cpu.idle %s, want 1", got)
	}
}

func TestCPULimitThrottles(t *testing.T) {
	b := newBench(t)
	c := script("job", node.LS, "timeout 2 sh -c 'while :; do :; done'")
	c.CPULimit = node.Some(unit.MilliCPU(200))
	r, err := b.run(c)
	if err != nil {
		t.Fatal(err)
	}
	throttled, _ := r.ThrottledSeconds.Value()
	if cpus := r.CPUSeconds / r.WallSeconds; cpus > 0.3 || throttled == 0 {
		t.Errorf("got %.2f CPUs, throttled %.2f s: want at most 0.2 CPUs", cpus, throttled)
	}
}

func TestMemoryLimitKills(t *testing.T) {
	b := newBench(t)
	c := script("job", node.BE, "x=x; while :; do x=$x$x; done")
	c.MemoryLimit = node.Some(unit.Bytes(32 << 20))
	r, err := b.run(c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Signal != "SIGKILL" || r.OOMKills != node.Some[int64](1) {
		t.Errorf("result %v: want SIGKILL by one OOM kill", r)
	}
}

func TestWaitingForACPUIsMeasured(t *testing.T) {
	b := newBench(t)
	// Three busy loops share one CPU, so two of them always wait. The test runs
	// long enough for two samples, even if samples are expensive, as in an
	// emulator.
	spin := "timeout 6 sh -c 'while :; do :; done'"
	r, err := b.run(script("job", node.LS, "taskset -p -c 0 $$ >/dev/null; "+spin+" & "+spin+" & "+spin+"; wait"))
	if err != nil {
		t.Fatal(err)
	}
	if seen := r.CPUSeconds * r.WaitedCoverage; r.WaitedCoverage < 0.1 || r.WaitedSeconds < 1.2*seen {
		t.Errorf("waited %.2f s, got %.2f s of CPU (coverage %.2f): want about twice what was seen", r.WaitedSeconds, r.CPUSeconds, r.WaitedCoverage)
	}
}

func TestManyLaunchesAtOnceShareTheClassGroup(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			// Each launcher has its own Host, as separate processes have.
			r, err := b.run(script("job"+strconv.Itoa(i), node.BE, "exit 7"))
			if err != nil || r.Status != 7 {
				t.Errorf("launch %d: status %d, %v", i, r.Status, err)
			}
		})
	}
	wg.Wait()
	if left := b.listGroups(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}

func TestNameInUseIsRefusedAndAnEmptyOneReused(t *testing.T) {
	b := newBench(t)
	group := b.Root.Join(BestEffortGroup).Join("job")
	if err := b.Tree.Make(string(group)); err != nil { // as a killed tenon run leaves it
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := b.run(script("job", node.BE, "echo >"+b.dir+"/ready . ; until [ -e "+b.dir+"/end ]; do sleep 0.02; done"))
		done <- err
	}()
	b.await("ready")
	if _, err := b.run(script("job", node.BE, "true")); err == nil || !strings.Contains(err.Error(), "choose another --name") {
		t.Errorf("second launch of the same name: %v", err)
	}
	if err := os.WriteFile(b.dir+"/end", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left := b.listGroups(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}

func TestCommandThatCannotStartLeavesNothing(t *testing.T) {
	b := newBench(t)
	bad := filepath.Join(b.dir, "bad")
	if err := os.WriteFile(bad, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := b.run(Command{Name: "job", Class: node.BE, Args: []string{bad}})
	if !errors.As(err, new(*StartError)) {
		t.Errorf("error %v, want a StartError", err)
	}
	if left := b.listGroups(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}

func TestWhatOutlivesTheCommandKeepsItsClass(t *testing.T) {
	b := newBench(t)
	_, err := b.run(script("job", node.BE, "(sleep 0.3; cat /proc/self/cgroup >"+b.dir+"/late) &"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.await("late"), BestEffortGroup+"/job") {
		t.Errorf("the remaining process ran in %s", b.await("late"))
	}
	if left := b.listGroups(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}

func TestSignalLetsTheRestGoOnOutside(t *testing.T) {
	b := newBench(t)
	go func() {
		for b.noted() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		syscall.Kill(os.Getpid(), syscall.SIGINT)
	}()
	r, err := b.run(script("job", node.BE, "sleep 60 & echo $! >"+b.dir+"/pid; exit 4"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(b.await("pid"))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	here, _ := os.ReadFile("/proc/self/cgroup")
	there, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || string(there) != string(here) {
		t.Errorf("the remaining process is in %s (%v), want %s", there, err, here)
	}
	if r.Status != 4 || len(b.notes) != 2 {
		t.Errorf("status %d, notes %q: want 4 and two notes", r.Status, b.notes)
	}
	if left := b.listGroups(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}

func TestGroupsThatTheCommandMadeGoToo(t *testing.T) {
	b := newBench(t)
	dir, err := b.Tree.Dir("cpu", string(b.Root.Join(SensitiveGroup).Join("job")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.run(script("job", node.LS, "mkdir -p "+dir+"/own/deep")); err != nil {
		t.Fatal(err)
	}
	if left := b.listGroups(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}

func TestKill9LeavesTheCommandAndRestoreThePlace(t *testing.T) {
	b := newBench(t)
	be := b.Root.Join(BestEffortGroup)
	script := "echo $$ >" + b.dir + "/pid; while :; do sleep 0.05; done"
	cmd := startLauncher(t, script, nil, nil, rootEnv+"="+string(b.Root), stateEnv+"="+b.dir)
	pid, err := strconv.Atoi(b.await("pid"))
	if err != nil {
		t.Fatal(err)
	}
	end := func() {
		syscall.Kill(pid, syscall.SIGKILL)
		for pids, _ := b.Tree.Procs(string(be + "/job")); len(pids) > 0; pids, _ = b.Tree.Procs(string(be + "/job")) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Cleanup(end)
	cmd.Process.Kill()
	cmd.Wait()

	before, err := b.Tree.ReadCPUWeight(string(be))
	if err != nil {
		t.Fatal(err)
	}
	report, err := b.Host.Restore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after, err := b.Tree.ReadCPUWeight(string(be))
	if err != nil {
		t.Fatal(err)
	}
	if b.Host.Capabilities().Has(node.FeatureCPUIdle) && !before.Idle || after.Idle {
		t.Errorf("idle was %v and is %v: want the command in its class until the restore, and no knob after", before.Idle, after.Idle)
	}
	if syscall.Kill(pid, 0) != nil || !strings.Contains(report.String(), strconv.Itoa(pid)) {
		t.Errorf("the command must run on and be reported:\n%s", report)
	}
	end()
	if _, err := b.Host.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := b.listGroups(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}
