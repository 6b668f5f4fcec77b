package host

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/node"
)

// TestAHostWithoutACacheShowsTheSameKnobs compares the snapshots of two hosts
// on a vendor's kernel: a resident one, and one without a cache, as in tenon
// plan. A dry run would plan no knob that its snapshots lack.
func TestAHostWithoutACacheShowsTheSameKnobs(t *testing.T) {
	shown := func(resident bool) map[node.File]bool {
		b := newBench(t, resident)
		for _, p := range []string{"be", "be/a", "be/b", "ls"} {
			b.put(t, filepath.Join(b.root, p, "cpu.bvt_warp_ns"), "0\n")
		}
		b.can = func() node.Capabilities { return node.Capabilities{node.FeatureGroupIdentity: available("model")} }
		b.Show(node.AllFiles)
		files := map[node.File]bool{}
		for k := range b.snapshot(t).Knobs.Now {
			if k.Cgroup == "be/a" {
				files[k.File] = true
			}
		}
		return files
	}
	resident := shown(true)
	if !resident[node.FileIdentity] || !resident[node.FileCPUWeight] {
		t.Errorf("a resident host shows %v", resident)
	}
	if diff := cmp.Diff(resident, shown(false)); diff != "" {
		t.Errorf("another host shows other knobs (-resident +other):\n%s", diff)
	}
}
