package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestMain lets the test binary also serve as the lab's child process.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "lab-child" {
		if err := Child(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// requireReal skips a test if the machine cannot run the experiment. With
// TENON_TEST_STRICT=1 it fails the test instead.
func requireReal(t *testing.T, needs ...work.Program) {
	t.Helper()
	skip := t.Skipf
	if os.Getenv("TENON_TEST_STRICT") == "1" {
		skip = t.Fatalf
	}
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	for _, p := range needs {
		if _, err := p.Find(); err != nil {
			skip("%v", err)
		}
	}
	if runtime.NumCPU() < 2 {
		skip("needs two CPUs")
	}
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		skip("%v", err)
	}
	probe := fmt.Sprintf("tenon-test-probe-%d", os.Getpid())
	if err := errors.Join(tree.Make(probe), tree.Remove(probe)); err != nil {
		skip("cannot make cgroups: %v", err)
	}
}

// nearFirst is a load in percent. The first rate that the calibration tries
// causes about this load, so that the search for the rate is usually short.
const nearFirst = 10

// smallExperiment returns the configuration of a short experiment with a small
// film. The experiment has its own root cgroup. When the test ends,
// smallExperiment checks that nothing of the experiment is left.
func smallExperiment(t *testing.T, modes ...report.Mode) Config {
	t.Helper()
	film := filepath.Join(t.TempDir(), "film.mp4")
	out, err := exec.Command("ffmpeg", "-nostdin", "-loglevel", "error",
		"-f", "lavfi", "-i", "testsrc2=size=320x240:rate=25:duration=2", "-f", "lavfi", "-i", "sine=duration=2",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", film).CombinedOutput()
	if err != nil {
		t.Fatalf("render a film: %v %s", err, out)
	}
	c := Config{
		Setting: setting(t), Modes: modes, Blocks: 1, Duration: time.Second, Input: film, LoadPercent: nearFirst,
		StealPercent: 100, // steal time must not void a run, because the tests check no measured values
	}
	t.Cleanup(func() { nothingLeft(t, c.Setting) })
	return c
}

// setting returns the setting of a short experiment that has its own root
// cgroup.
func setting(t *testing.T) testbed.Setting {
	return testbed.Setting{
		Seed: 1, Out: filepath.Join(t.TempDir(), "out"), JournalDir: filepath.Join(t.TempDir(), "journal"),
		Root: node.CgroupPath(fmt.Sprintf("tenon-test-%d", os.Getpid())),
		Self: []string{os.Args[0], "lab-child"},
		Once: true,
	}
}

func nothingLeft(t *testing.T, c testbed.Setting) {
	t.Helper()
	tree, err := cgroup.Detect("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if tree.Exists(string(c.Root)) {
		t.Errorf("cgroup %s is left", c.Root)
	}
	fs := proc.Default()
	pids, err := fs.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		st, err := fs.PIDStat(pid)
		if err == nil && st.PPID == os.Getpid() {
			t.Errorf("process %d (%s) is left", pid, st.Comm)
		}
	}
	if dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "tenon-lab-*")); len(dirs) > 0 {
		t.Errorf("directories are left: %v", dirs)
	}
}

func TestColocationRunsAndLeavesNothing(t *testing.T) {
	requireReal(t, work.NGINXProgram, work.FFmpegProgram)
	t.Setenv("TMPDIR", openDir(t))
	c := smallExperiment(t, report.Exclusive, report.ExclusiveWarm, report.ExclusiveAwake, report.Burstable, report.Tenon, report.Tenon65)
	c.LoadPercent = 0 // the default, for which the calibration tries several rates
	var notices strings.Builder
	c.Notices = &notices
	o, err := Colocate(context.Background(), c)
	t.Log(notices.String())
	if err != nil {
		t.Fatal(err)
	}
	_, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[report.Mode]colocation.Run{}
	for _, r := range runs {
		seen[r.Mode] = r
		if r.Latency.P50 <= 0 || r.Requests == 0 || r.LSCPU <= 0 || r.Timeslices == 0 || len(r.Series) == 0 || r.Histogram == nil {
			t.Errorf("%s: %+v", r.Mode, r)
		}
		if batch := r.Mode.Spec().Batch; batch != (r.Frames > 0) || batch != (r.BECPU > 0) {
			t.Errorf("%s: ffmpeg encoded %v frames on %v CPUs", r.Mode, r.Frames, r.BECPU)
		}
	}
	if len(seen) != len(c.Modes) {
		t.Errorf("modes %v", seen)
	}
	for _, w := range seen[report.Tenon].Writes { // least weight and long slices: no trial ends within a run
		if !strings.Contains(w, " slice ") && !strings.Contains(w, " cpu.weight ") || strings.Contains(w, "-> idle") {
			t.Errorf("tenon wrote %q", w)
		}
	}
	if w := strings.Join(seen[report.Tenon65].Writes, "\n"); !strings.Contains(w, "besteffort cpu") || len(seen[report.Tenon65].Writes) < 2 {
		t.Errorf("tenon-65 wrote %q", w)
	}
	for _, file := range []string{"result.json", "report.html"} {
		if _, err := os.Stat(filepath.Join(o.Dir, file)); err != nil {
			t.Error(err)
		}
	}
}

// openDir returns a temporary directory that nginx's workers can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tenon-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// trigger is a writer. When the written text contains word, it calls act once.
type trigger struct {
	word string
	act  func()
	once sync.Once
}

func (w *trigger) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.word) {
		w.once.Do(w.act)
	}
	return len(b), nil
}

func TestInterruptKeepsFinishedRuns(t *testing.T) {
	requireReal(t, work.NGINXProgram, work.FFmpegProgram)
	t.Setenv("TMPDIR", openDir(t))
	c := smallExperiment(t, report.Tenon)
	c.Blocks = 50
	ctx, cancel := context.WithCancel(context.Background())
	// Cancel the experiment in the middle of its second block.
	c.Notices = &trigger{word: "block 2", act: func() { time.AfterFunc(1200*time.Millisecond, cancel) }}
	o, err := Colocate(ctx, c)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if o.Runs < 1 {
		t.Errorf("%d runs are kept", o.Runs)
	}
	if _, err := os.Stat(o.Report()); err != nil {
		t.Error(err)
	}
}

func TestFaultsAreFoundBeforeAnythingRuns(t *testing.T) {
	requireReal(t, work.NGINXProgram, work.FFmpegProgram)
	t.Setenv("TMPDIR", openDir(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tests := map[string]struct {
		change func(*Config)
		want   string
	}{
		"occupied port":    {func(c *Config) { c.Port = l.Addr().(*net.TCPAddr).Port }, "is in use by another program"},
		"no such film":     {func(c *Config) { c.Input = "/no/such/film.mp4" }, "--input"},
		"not a film":       {func(c *Config) { c.Input = os.Args[0] }, "ffmpeg 1 ended"},
		"no such CPU":      {func(c *Config) { c.CPUs = unit.CPUSetOf(1000) }, "CPU 1000 is not online"},
		"results exist":    {func(c *Config) { os.MkdirAll(c.Out, 0o755); os.WriteFile(c.Out+"/experiment.json", nil, 0o644) }, "choose another directory"},
		"out is no folder": {func(c *Config) { c.Out = "/dev/null/x" }, "--out"},
		"missing ffmpeg":   {func(*Config) { t.Setenv("PATH", t.TempDir()) }, "ffmpeg is not installed: apt install"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := os.Getenv("PATH")
			defer os.Setenv("PATH", path)
			c := smallExperiment(t, report.Exclusive)
			tt.change(&c)
			_, err := Colocate(context.Background(), c)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one error: %v", err)
			}
		})
	}
}
