package capability

import (
	"os"
	"path/filepath"
	"testing"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

func TestSwitchesDecideWhatMarksAndCookiesCanDo(t *testing.T) {
	tests := map[string]struct {
		sysctls     map[string]string
		marks, core node.Verdict
		why         string // of marks
	}{
		"a kernel without switches": {nil, node.Yes, node.Yes, "model"},
		"both on and off":           {map[string]string{"sched_group_identity_enabled": "1\n", "sched_core": "0\n"}, node.Yes, node.No, "model"},
		"marks are not heeded yet":  {map[string]string{"sched_group_identity_enabled": "0\n"}, node.Yes, node.Yes, "model; kernel.sched_group_identity_enabled is 0 and will be turned on"},
		"core scheduling is on":     {map[string]string{"sched_group_identity_enabled": "1\n", "sched_core": "1\n"}, node.No, node.Yes, "model, but kernel.sched_core is 1, and both together lock up some kernels"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			fs := proc.FS{Proc: t.TempDir()}
			do(t, os.MkdirAll(filepath.Join(fs.Proc, "sys/kernel"), 0o755))
			for name, text := range tc.sysctls {
				do(t, os.WriteFile(filepath.Join(fs.Proc, "sys/kernel", name), []byte(text), 0o644))
			}
			can := node.Capabilities{node.FeatureGroupIdentity: yes("model"), node.FeatureCoreSched: yes("model")}
			prober{Node: Node{FS: fs}}.withSwitches(can)
			if can[node.FeatureGroupIdentity].Verdict != tc.marks || can[node.FeatureCoreSched].Verdict != tc.core || can[node.FeatureGroupIdentity].Why != tc.why {
				t.Errorf("got %v, want marks %s, %q, and core scheduling %s", can, tc.marks, tc.why, tc.core)
			}
		})
	}
}
