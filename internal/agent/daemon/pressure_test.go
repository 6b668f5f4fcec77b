package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

// v2 is a tree of cgroup v2 in a folder. Its pressure files are FIFOs, so that
// a test can read what is written to them.
type v2 struct {
	*testing.T
	mount string
	proc  string
	log   strings.Builder
	*pressure
}

func newV2(t *testing.T) *v2 {
	t.Helper()
	x := &v2{T: t, mount: t.TempDir(), proc: t.TempDir()}
	for file, text := range map[string]string{
		filepath.Join(x.mount, "cgroup.controllers"): "cpu memory\n",
		filepath.Join(x.proc, "self/mountinfo"):      fmt.Sprintf("30 1 0:26 / %s rw - cgroup2 cgroup2 rw\n", x.mount),
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroup.Detect(x.proc)
	if err != nil {
		t.Fatal(err)
	}
	x.pressure = newPressure(tree, x.proc, slog.New(slog.NewTextHandler(&x.log, nil)), func(tick.Event) {})
	t.Cleanup(x.close)
	return x
}

// group makes a cgroup. It returns a function that reads what was written to
// one of the cgroup's pressure files since the last call.
func (x *v2) group(path string) (asked func(resource string) string) {
	x.Helper()
	files := map[string]*os.File{}
	for _, resource := range []string{"cpu", "memory"} {
		name := filepath.Join(x.mount, path, resource+".pressure")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			x.Fatal(err)
		}
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			x.Fatal(err)
		}
		// With O_RDWR, open(2) does not wait for a writer.
		f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			x.Fatal(err)
		}
		x.Cleanup(func() { _ = f.Close() })
		files[resource] = f
	}
	return func(resource string) string {
		text := make([]byte, 256)
		n, err := syscall.Read(int(files[resource].Fd()), text)
		if err != nil && n > 0 {
			x.Fatal(err)
		}
		return string(text[:max(n, 0)])
	}
}

func (x *v2) watched() []string {
	var all []string
	for w := range x.triggers {
		all = append(all, string(w.id)+" "+w.resource)
	}
	slices.Sort(all)
	return all
}

func TestTriggersFollowTheServices(t *testing.T) {
	x := newV2(t)
	asked := x.group("web")
	x.group("job")
	x.group("api")
	web := node.Workload{ID: "web", Class: node.LS, Cgroup: "web"}
	job := node.Workload{ID: "job", Class: node.BE, Cgroup: "job"}
	api := node.Workload{ID: "api", Class: node.LSR, Cgroup: "api"}
	for _, step := range []struct {
		workloads []node.Workload
		on, cpu   bool
		want      []string
	}{
		{[]node.Workload{web, job}, true, true, []string{"web cpu", "web memory"}},
		{[]node.Workload{web, job, api}, true, false, []string{"api memory", "web memory"}},
		{[]node.Workload{api}, true, true, []string{"api cpu", "api memory"}},
		{[]node.Workload{web, api}, false, true, nil},
	} {
		x.follow(step.workloads, step.on, step.cpu)
		if got := x.watched(); !slices.Equal(got, step.want) {
			t.Errorf("triggers %v, want %v", got, step.want)
		}
	}
	if got := asked("cpu"); got != "some 50000 500000\n" {
		t.Errorf("web's cpu.pressure received %q", got)
	}
	if got := asked("memory"); got != "some 50000 500000\n" {
		t.Errorf("web's memory.pressure received %q", got)
	}
	if x.log.Len() > 0 {
		t.Errorf("the log is %s", &x.log)
	}
}

// TestOnlyPressureOfCPUIsAWaitForACPU checks which events a quota can explain.
func TestOnlyPressureOfCPUIsAWaitForACPU(t *testing.T) {
	x := newV2(t)
	for resource, want := range map[string]time.Duration{"cpu": 50 * time.Millisecond, "memory": 0} {
		if e := x.eventOf(triggerTarget{"web", "web", resource}); e.Wait != want || e.Workload != "web" {
			t.Errorf("%s: %+v", resource, e)
		}
	}
}

func TestPressureThatCannotBeIsSaidOnce(t *testing.T) {
	x := newV2(t)
	var all []node.Workload
	for i := range 2 * maxTriggered { // cgroups without pressure files
		path := node.CgroupPath(fmt.Sprintf("web-%d", i))
		if err := os.Mkdir(filepath.Join(x.mount, string(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		all = append(all, node.Workload{ID: node.WorkloadID(path), Class: node.LS, Cgroup: path})
	}
	for range 3 {
		x.follow(all, true, true)
	}
	said := x.log.String()
	for _, text := range []string{"cpu pressure does not wake the loop", "memory pressure does not wake the loop", "the first 32 latency-sensitive workloads only"} {
		if n := strings.Count(said, text); n != 1 {
			t.Errorf("said %d times %q:\n%s", n, text, said)
		}
	}
	x.follow(append(all, node.Workload{ID: "gone", Class: node.LS, Cgroup: "gone"})[len(all):], true, false)
	if strings.Contains(x.log.String(), "gone") {
		t.Error("a removed group was logged as a fault of pressure")
	}
}

func TestPressureIsSaidAgainForAnotherCauseAndConfiguration(t *testing.T) {
	x := newV2(t)
	for path, dir := range map[string]string{"old": "", "odd": "memory.pressure"} {
		if err := os.MkdirAll(filepath.Join(x.mount, path, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	old := []node.Workload{{ID: "old", Class: node.LS, Cgroup: "old"}}
	odd := []node.Workload{{ID: "odd", Class: node.LS, Cgroup: "odd"}}
	s := signals{pressure: x.pressure}
	for i, turn := range []struct {
		workloads []node.Workload
		fresh     bool // after another configuration
		said      int
	}{{old, false, 1}, {old, false, 1}, {odd, false, 2}, {odd, false, 2}, {old, true, 3}} {
		if turn.fresh {
			s.use(config.Signals{Pressure: true})
		}
		x.follow(turn.workloads, true, false)
		if n := strings.Count(x.log.String(), "memory pressure does not wake the loop"); n != turn.said {
			t.Errorf("turn %d: it was said %d times, want %d:\n%s", i, n, turn.said, &x.log)
		}
	}
	if x.window != pressureWindow {
		t.Errorf("the window is %v, and the kernel did not refuse the shorter one", x.window)
	}
}

func TestALostTriggerIsSetAgainNowAndThen(t *testing.T) {
	x := newV2(t)
	now := time.Unix(100, 0)
	if x.retry(now) {
		t.Error("retry is due although no trigger was lost")
	}
	x.lost.Store(true)
	for i, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {retryPause - 1, false}, {retryPause, true}} {
		if got := x.retry(now.Add(c.after)); got != c.want {
			t.Errorf("look %d: %v, want %v", i, got, c.want)
		}
	}
	x.follow(nil, true, true)
	if x.retry(now.Add(time.Hour)) {
		t.Error("retry is due although all triggers are set")
	}
}
