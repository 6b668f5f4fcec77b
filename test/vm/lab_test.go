package vm

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The lab with real nginx and ffmpeg, for what it does and not for its
// numbers, which mean nothing under emulation.
func TestLabOnCgroupV2(t *testing.T) {
	machine(t)
	image := withTenon(t, realPrograms(t))
	if err := image.File("/clip.mp4", smallClip(t)); err != nil {
		t.Fatal(err)
	}
	lab := Command{
		Name: "lab",
		Args: []string{
			"tenon", "lab", "colocation", "--blocks", "1", "--duration", "3s",
			"--modes", "exclusive,default,tenon", "--load", "30%", "--connections", "8",
			"--be-processes", "2", "--be-threads", "1", "--input", "/clip.mp4", "--out", "/out",
		},
		Timeout: 8 * time.Minute,
	}
	report := run(t, image, 10*time.Minute, lab,
		Shell("result", "cat /out/result.json"),
		Shell("files", "find /out -type f | xargs ls -l"),
		Shell("leftovers", leftovers))

	if o, ok := report.Outcome("lab"); !ok || o.Exit != 0 {
		t.Errorf("lab: exit %d\n%s", o.Exit, o.Output)
	}
	checkLeftovers(t, report)
	o, _ := report.Outcome("result")
	var result struct {
		Modes    map[string]map[string]any `json:"modes"`
		VoidRuns []struct {
			Mode string `json:"mode"`
		} `json:"void_runs"`
	}
	if err := json.Unmarshal([]byte(o.Output), &result); err != nil {
		t.Fatalf("result.json: %v\n%s", err, o.Output)
	}
	// Emulation may well spoil a run; then it must be said to be void.
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

// smallClip renders a film that an emulated machine transcodes in a moment.
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
