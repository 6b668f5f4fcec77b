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

	"tenon.sh/tenon/internal/agent"
	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/host"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/policy"
	"tenon.sh/tenon/internal/proc"
	"tenon.sh/tenon/internal/unit"
)

// A bench is a launcher on the real kernel, below a cgroup of its own.
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

// launcher returns one as each tenon run has it: with a Host of its own.
func (b *bench) launcher(tree *cgroup.Tree, root node.CgroupPath) *Launcher {
	h, err := host.Open(host.Options{Tree: tree, FS: proc.Default(), JournalDir: b.dir})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { h.Close() })
	a := &agent.Agent{Host: h, Config: policy.Config{CPUQOS: true}}
	return &Launcher{
		Host: h, Tree: tree, FS: proc.Default(), Root: root, StateDir: b.dir, Program: os.Args[:1],
		Turn: func(ctx context.Context) error { _, err := a.Step(ctx); return err },
		Note: func(s string) {
			b.mutex.Lock()
			defer b.mutex.Unlock()
			b.notes = append(b.notes, s)
		},
	}
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

// left lists the groups below the bench's root.
func (b *bench) left() string {
	names, err := b.Tree.Children(string(b.Root))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func (b *bench) await(file string) string {
	b.t.Helper()
	for range 6000 { // best-effort work on a busy machine takes its time
		text, err := os.ReadFile(filepath.Join(b.dir, file))
		if err == nil && len(text) > 0 {
			return strings.TrimSpace(string(text))
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatalf("waited in vain for %s", file)
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
	if left := b.left(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}

func TestBEIsIdleWhereItMeetsOthersBeforeItRuns(t *testing.T) {
	b := newBench(t)
	if !b.Host.Capabilities().Can(node.MechCPUIdle) {
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
	c := script("job", node.LS, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	c.CPULimit = node.Some(unit.MilliCPU(200))
	r, err := b.run(c)
	if err != nil {
		t.Fatal(err)
	}
	throttled, _ := r.ThrottledSeconds.Value()
	if cpus := r.CPUSeconds / r.WallSeconds; cpus > 0.25 || throttled == 0 {
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
	if r.Signal != "SIGKILL" || r.OOMKills != 1 {
		t.Errorf("result %v: want SIGKILL by one OOM kill", r)
	}
}

func TestWaitingForACPUIsMeasured(t *testing.T) {
	b := newBench(t)
	// More spinners than CPUs, pinned to one: two of three always wait.
	spin := "end=$(($(date +%s)+2)); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; done"
	r, err := b.run(script("job", node.LS, "taskset -p -c 0 $$ >/dev/null; ("+spin+") & ("+spin+") & "+spin+"; wait"))
	if err != nil {
		t.Fatal(err)
	}
	if r.WaitedSeconds < r.CPUSeconds {
		t.Errorf("waited %.2f s, got %.2f s of CPU (coverage %.2f): want about twice as much", r.WaitedSeconds, r.CPUSeconds, r.WaitedCoverage)
	}
}

func TestManyLaunchesAtOnceShareTheClassGroup(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			// Each has a Host of its own, like separate processes.
			r, err := b.run(script("job"+strconv.Itoa(i), node.BE, "exit 7"))
			if err != nil || r.Status != 7 {
				t.Errorf("launch %d: status %d, %v", i, r.Status, err)
			}
		})
	}
	wg.Wait()
	if left := b.left(); left != "" {
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
	if left := b.left(); left != "" {
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
	if left := b.left(); left != "" {
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
		t.Errorf("the rest ran in %s", b.await("late"))
	}
	if left := b.left(); left != "" {
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
		t.Errorf("the rest is in %s (%v), want %s", there, err, here)
	}
	if r.Status != 4 || len(b.notes) != 2 {
		t.Errorf("status %d, notes %q: want 4 and two notes", r.Status, b.notes)
	}
	if left := b.left(); left != "" {
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
	if left := b.left(); left != "" {
		t.Errorf("groups left behind: %s", left)
	}
}
