package capability

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/cachectl"
	"tenon.sh/tenon/internal/model/node"
)

// TestALimitOfACoreIsReported checks that the answer about memory bandwidth says
// whether a limit holds for a whole core.
func TestALimitOfACoreIsReported(t *testing.T) {
	for mode, want := range map[string]bool{"max": true, "per-thread": false} {
		dir := t.TempDir()
		for file, text := range map[string]string{
			"proc/self/mountinfo": "31 24 0:28 / " + dir + "/resctrl rw - resctrl resctrl rw", "resctrl/tasks": "",
			"resctrl/info/MB/num_closids": "8", "resctrl/info/MB/min_bandwidth": "10", "resctrl/info/MB/bandwidth_gran": "10",
			"resctrl/info/MB/delay_linear": "1", "resctrl/info/MB/thread_throttle_mode": mode,
		} {
			path := filepath.Join(dir, file)
			do(t, os.MkdirAll(filepath.Dir(path), 0o755))
			do(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
		}
		fs, can := proc.FS{Proc: filepath.Join(dir, "proc")}, node.Capabilities{}
		prober{Node: Node{FS: fs, Controls: cachectl.New(fs.Proc, nil, nil)}}.probeResctrl(can)
		if got := can[node.FeatureResctrlMB]; got.Verdict != node.Yes || strings.Contains(got.Why, "a limit holds for a whole core") != want {
			t.Errorf("%s: %+v", mode, got)
		}
	}
}
