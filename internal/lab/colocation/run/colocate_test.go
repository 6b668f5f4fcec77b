package run

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/labtest"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// TestMain lets the test binary also serve as the lab's child process.
func TestMain(m *testing.M) { labtest.Main(m) }

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
		Setting: labtest.Setting(t), Modes: modes, Duration: time.Second, Input: film, LoadPercent: nearFirst,
	}
	t.Cleanup(func() { labtest.NothingLeft(t, c.Setting) })
	return c
}

func TestColocationRunsAndLeavesNothing(t *testing.T) {
	labtest.RequireReal(t, work.NGINXProgram, work.FFmpegProgram)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := smallExperiment(t, report.Exclusive, report.ExclusiveWarm, report.ExclusiveAwake, report.Burstable, report.Tenon, report.Tenon65)
	c.LoadPercent = 0 // the default, for which the calibration tries several rates
	var notices strings.Builder
	c.Notices = &notices
	o, err := Run(context.Background(), c)
	t.Log(notices.String())
	if err != nil {
		t.Fatal(err)
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := batchRequest(c.Modes, unit.CPUs(e.TestedCPUs.Len())); e.BatchRequest != want || want == 0 {
		t.Errorf("the record names a batch request of %d m, want %d m", e.BatchRequest, want)
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

// TestTheRequestOfBatchPodsIsRecorded checks the request beside a service that
// requests all tested CPUs. It is part of every published multiple.
func TestTheRequestOfBatchPodsIsRecorded(t *testing.T) {
	for want, modes := range map[int][]report.Mode{0: {report.Exclusive, report.Default}, 1250: {report.Default, report.Burstable}} {
		if got := batchRequest(modes, unit.CPUs(2)); got != want {
			t.Errorf("%v: %d m, want %d m", modes, got, want)
		}
	}
}

func TestInterruptKeepsFinishedRuns(t *testing.T) {
	inTurn(t)
	labtest.RequireReal(t, work.NGINXProgram, work.FFmpegProgram)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
	c := smallExperiment(t, report.Tenon)
	c.Blocks = 50
	ctx, cancel := context.WithCancel(context.Background())
	// Cancel the experiment in the middle of its second block.
	c.Notices = &labtest.Trigger{Word: "block 2", Act: func() { time.AfterFunc(1200*time.Millisecond, cancel) }}
	o, err := Run(ctx, c)
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
	inTurn(t)
	labtest.RequireReal(t, work.NGINXProgram, work.FFmpegProgram)
	t.Setenv("TMPDIR", labtest.OpenDir(t))
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
			_, err := Run(context.Background(), c)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one error: %v", err)
			}
		})
	}
}
