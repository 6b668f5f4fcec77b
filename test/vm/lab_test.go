package vm

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLabOnCgroupV2 runs the lab with real nginx and ffmpeg. It checks the
// steps of the lab, but not its numbers, which have no meaning in emulation.
// The lab refuses to measure if nginx is too slow, as on a busy host. Therefore
// the clock of the guest counts instructions.
func TestLabOnCgroupV2(t *testing.T) {
	needTurn(t, "colocation")
	t.Parallel()
	m := countInstructions(t, machine(t))
	image := withTenon(t, realPrograms(t, "nginx", "ffmpeg", "ffprobe"))
	if err := image.File("/clip.mp4", smallClip(t)); err != nil {
		t.Fatal(err)
	}
	lab := Command{
		Name: "lab",
		Args: []string{
			"tenon", "lab", "colocation", "--blocks", "1", "--duration", "3s",
			"--modes", "exclusive,default,tenon", "--no-retry", "--load", "1%", "--connections", "4",
			"--cpus", "0-1", "--client-cpus", "2-3",
			"--be-processes", "1", "--be-threads", "1", "--input", "/clip.mp4", "--out", "/out",
		},
		Timeout: 8 * time.Minute,
	}
	runChecked(t, m, image, 10*time.Minute, checkLab, lab,
		Shell("result", "cat /out/result.json"),
		Shell("runs", "cat /out/runs/*.json"),
		Shell("page", "grep -c '</html>' /out/report.html"),
		Shell("leftovers", leftovers))
}

func checkLab(t *findings, report Report) {
	for _, name := range []string{"lab", "page"} {
		if o, ok := report.Outcome(name); !ok || o.Exit != 0 {
			t.Errorf("%s: exit %d\n%s", name, o.Exit, o.Output)
		}
	}
	checkLeftovers(t, report)
	t.Run("every run did its mode", func(t *findings) { checkRuns(t, report) })
	t.Run("the result has its keys", func(t *findings) { checkResult(t, report) })
}

// checkRuns checks the raw data of all runs, even of void ones.
func checkRuns(t *findings, report Report) {
	o, _ := report.Outcome("runs")
	requests := int64(0)
	frames := make(map[string]float64)
	writes := make(map[string]string)
	for decoder := json.NewDecoder(strings.NewReader(o.Output)); decoder.More(); {
		var run struct {
			Mode     string   `json:"mode"`
			Void     []string `json:"void"`
			Requests int64    `json:"requests"`
			Frames   float64  `json:"be_frames"`
			Writes   []string `json:"writes"`
		}
		if err := decoder.Decode(&run); err != nil {
			t.Errorf("runs/*.json: %v\n%s", err, o.Output)
			return
		}
		t.Logf("%-10s %5d requests, %5.1f frames, writes %q, void %q", run.Mode, run.Requests, run.Frames, run.Writes, run.Void)
		requests += run.Requests
		frames[run.Mode] += run.Frames
		writes[run.Mode] += strings.Join(run.Writes, "\n")
	}
	if requests == 0 {
		t.Errorf("nginx has answered nothing")
	}
	if frames["exclusive"] != 0 || frames["default"] == 0 || frames["tenon"] == 0 {
		t.Errorf("frames encoded %v: want none in exclusive, some in default and tenon", frames)
	}
	if w := writes["tenon"]; !strings.Contains(w, "besteffort") || !strings.Contains(w, "idle") {
		t.Errorf("mode tenon has not made the best-effort class idle; it wrote %q", w)
	}
}

// checkResult checks that result.json has the documented keys.
func checkResult(t *findings, report Report) {
	o, _ := report.Outcome("result")
	var result struct {
		Modes    map[string]map[string]any `json:"modes"`
		VoidRuns []struct {
			Mode string `json:"mode"`
		} `json:"void_runs"`
	}
	if err := json.Unmarshal([]byte(o.Output), &result); err != nil {
		t.Errorf("result.json: %v\n%s", err, o.Output)
		return
	}
	// Emulation may spoil a run. Then the run must be void.
	void := make(map[string]bool)
	for _, r := range result.VoidRuns {
		void[r.Mode] = true
	}
	for _, mode := range []string{"exclusive", "default", "tenon"} {
		values, ok := result.Modes[mode]
		if !ok {
			if !void[mode] {
				t.Errorf("result.json has neither results nor void runs of mode %s", mode)
			}
			continue
		}
		for _, key := range []string{"p50_us", "p75_us", "p90_us", "p99_us", "p999_us", "cpu_percent", "be_frames_per_second", "ls_runqueue_delay_us"} {
			if _, ok := values[key]; !ok {
				t.Errorf("result.json has no modes.%s.%s", mode, key)
			}
		}
	}
}

// realPrograms makes an image with programs of this machine, and with their
// libraries. Those of ffmpeg are 240 MB, so only the guests that need it have
// it.
func realPrograms(t *testing.T, names ...string) *Image {
	t.Helper()
	image := new(Image)
	packages := map[string]string{"nginx": "nginx-light", "ffmpeg": "ffmpeg", "ffprobe": "ffmpeg"}
	for _, program := range names {
		host, err := exec.LookPath(program)
		if err != nil {
			// nginx is in sbin, which is not on the PATH of other users.
			host, err = exec.LookPath("/usr/sbin/" + program)
		}
		if err != nil {
			missing(t, "needs %s: install %s, or run scripts/install-deps.sh test", program, packages[program])
		}
		if err := image.Program("/usr/bin/"+program, host); err != nil {
			t.Fatal(err)
		}
	}
	image.Dir("/var/log/nginx")
	image.Dir("/var/lib/nginx")
	return image
}

// smallClip renders a film that an emulated machine transcodes quickly.
func smallClip(t *testing.T) string {
	t.Helper()
	clip := filepath.Join(t.TempDir(), "clip.mp4")
	render := exec.Command("ffmpeg", "-nostdin", "-loglevel", "error",
		"-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25", "-f", "lavfi", "-i", "sine",
		"-t", "2", "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac", clip)
	if output, err := render.CombinedOutput(); err != nil {
		t.Fatalf("render a clip: %v\n%s", err, output)
	}
	return clip
}

// TestKernelQOSOnCgroupV2 runs the mechanisms of the default kernel on cores
// with siblings. It checks the effects of the mechanisms, and not the
// latencies. The guest counts time by its instructions.
func TestKernelQOSOnCgroupV2(t *testing.T) {
	needTurn(t, "kernel-qos")
	t.Parallel()
	m := countInstructions(t, machine(t))
	m.Topology = Topology{Sockets: 1, CoresPerSocket: 3, ThreadsPerCore: 2}
	m.MiBPerNode = 2048
	image := withTenon(t, realPrograms(t, "nginx", "ffmpeg", "ffprobe"))
	if err := image.File("/clip.mp4", smallClip(t)); err != nil {
		t.Fatal(err)
	}
	lab := Command{
		Name: "lab",
		Args: []string{
			"tenon", "lab", "kernel-qos", "--modes", "default,tenon-siblings,tenon-scx",
			"--blocks", "1", "--duration", "1s", "--no-retry", "--load", "1%", "--connections", "4", "--cpus", "0-3", "--client-cpus", "4-5",
			"--be-processes", "2", "--be-threads", "1", "--input", "/clip.mp4", "--out", "/out",
		},
		Timeout: 12 * time.Minute,
	}
	missing := lab
	missing.Name, missing.Args = "missing", []string{"tenon", "lab", "colocation", "--modes", "exclusive,tenon-vendor"}
	runChecked(t, m, image, 15*time.Minute, checkKernelQOS, lab, missing,
		Shell("result", "cat /out/result.json"),
		Shell("runs", "cat /out/runs/*.json"),
		Shell("page", "grep -c '</html>' /out/report.html"),
		Shell("leftovers", leftovers+"; ls /sys/kernel/tracing/instances 2>/dev/null; grep -v disabled /sys/kernel/sched_ext/state"))
}

func checkKernelQOS(t *findings, report Report) {
	for _, name := range []string{"lab", "page"} {
		o, ok := report.Outcome(name)
		if !ok || o.Exit != 0 {
			t.Errorf("%s: exit %d\n%s", name, o.Exit, o.Output)
		}
		t.Logf("%s", o.Output)
	}
	if o, _ := report.Outcome("missing"); o.Exit == 0 || !strings.Contains(o.Output, "mode tenon-vendor: this node does not support the isolation mechanism vendor: ") {
		t.Errorf("missing: exit %d\n%s", o.Exit, o.Output)
	}
	checkLeftovers(t, report)
	var result struct {
		Experiment struct {
			Kind    string   `json:"kind"`
			Modes   []string `json:"modes"`
			Machine struct {
				Emulated bool `json:"emulated"`
			} `json:"machine"`
		} `json:"experiment"`
		Warnings []string `json:"warnings"`
	}
	o, _ := report.Outcome("result")
	if err := json.Unmarshal([]byte(o.Output), &result); err != nil {
		t.Errorf("result.json: %v\n%s", err, o.Output)
		return
	}
	e := result.Experiment
	if e.Kind != "kernel-qos" || !e.Machine.Emulated || len(result.Warnings) == 0 || !strings.Contains(result.Warnings[0], "means nothing") {
		t.Errorf("result.json: kind %q, emulated %v, warnings %q", e.Kind, e.Machine.Emulated, result.Warnings)
	}
	t.Run("every run did its mode", func(t *findings) { checkRungRuns(t, report, e.Modes) })
}

// checkRungRuns checks the raw data of all runs, even of void ones.
func checkRungRuns(t *findings, report Report, modes []string) {
	wrote := map[string]string{"default": "", "tenon-siblings": "cpuset.cpus", "tenon-scx": "scheduler"}
	o, _ := report.Outcome("runs")
	seen := map[string]bool{}
	for decoder := json.NewDecoder(strings.NewReader(o.Output)); decoder.More(); {
		var run struct {
			Mode   string   `json:"mode"`
			Void   []string `json:"void"`
			Writes []string `json:"writes"`
			Traced *struct {
				LSTime time.Duration `json:"ls_time_ns"`
				BETime time.Duration `json:"be_time_ns"`
				Beside time.Duration `json:"be_beside_ls_ns"`
			} `json:"traced"`
			Warnings []string `json:"warnings"`
		}
		if err := decoder.Decode(&run); err != nil {
			t.Errorf("runs/*.json: %v\n%s", err, o.Output)
			return
		}
		seen[run.Mode] = true
		if run.Traced == nil || run.Traced.LSTime <= 0 {
			t.Errorf("%s: no record of the scheduler: %+v, warnings %q", run.Mode, run.Traced, run.Warnings)
			continue
		}
		t.Logf("%-14s LS %v, BE %v, beside %v; writes %q, void %q", run.Mode, run.Traced.LSTime, run.Traced.BETime, run.Traced.Beside, run.Writes, run.Void)
		if want := wrote[run.Mode]; !strings.Contains(strings.Join(run.Writes, "\n"), want) || (want == "") != (len(run.Writes) == 0) {
			t.Errorf("%s: wrote %q, want %q", run.Mode, run.Writes, want)
		}
		for _, why := range run.Void {
			if strings.Contains(why, "not isolated by") || strings.Contains(why, "Tenon failed") {
				t.Errorf("%s: %s", run.Mode, why)
			}
		}
	}
	for _, m := range modes {
		if !seen[m] {
			t.Errorf("no run of %s", m)
		}
	}
}
