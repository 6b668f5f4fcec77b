package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/pinning"
)

// TestPinningIsMeasuredOnACluster runs the published manifests in the modes of a
// cluster. The node has two CPUs: the job can have one of them as its own, and
// the two servers share both. Each run must have its figures, and nothing may be
// left.
func TestPinningIsMeasuredOnACluster(t *testing.T) {
	needExperimentsTurn(t)
	runParallel(t)
	c, n := upWith(t, "pinning", NodeOptions{KubeProxy: true})
	serveThePublishedImages(t, c)
	must(t, c.Images().AddPublishedNGINX())
	a := newAgent(t, c, n)
	a.start()
	out := filepath.Join(t.TempDir(), "results")
	said, err := c.Command(t.Context(), filepath.Join(programs(t), "tenon"), "lab", "pinning", "--kubernetes", "--blocks", "1", "--no-retry", "--limit", "1",
		"--modes", "shared,shared-free,pinned,pinned-quota,pinned-worst,static-burst", "--threads", "300", "--digits", "3000", "--duration", "1s", "--out", out).CombinedOutput()
	t.Logf("%s", said)
	if err != nil {
		t.Fatal(err)
	}
	e, runs, err := pinning.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	if e.Node != n.Name || !e.ClientOnNode || e.Servers != 2 || e.ServerLimit != 1 || e.Limit != 1 {
		t.Errorf("the record is %+v", e)
	}
	refused := strings.Join(e.Refused, "\n")
	for _, why := range []string{
		"pinned-worst: the scheduler and tenond choose", "pi static-burst: the node has one L3 cache", "nginx pinned: too few CPUs for own CPUs of 2 pods: want 2, have 1: node " + n.Name,
	} {
		if !strings.Contains(refused, why) {
			t.Errorf("not refused: %q in %q", why, refused)
		}
	}
	var cells []string
	for _, r := range runs {
		cells = append(cells, r.Part+" "+string(r.Mode))
		switch {
		case len(r.Void) > 0:
			t.Errorf("run %d is void: %q", r.Index, r.Void)
		case r.Part == pinning.Pi:
			if p := r.PiResult; p == nil || p.Threads < 300 || p.Digits != 3000 || p.Right != 3000 || p.Seconds <= 0 {
				t.Errorf("%s: %+v", r.Mode, r.PiResult)
			}
			if own := r.Mode == pinning.Pinned || r.Mode == pinning.PinnedQuota; own != (r.CPUs.Len() == 1) {
				t.Errorf("%s ran on CPUs %v", r.Mode, r.CPUs)
			}
		default:
			w := r.Closed
			if w == nil || w.Rate <= 0 || w.Mean <= 0 || w.Stdev <= 0 || w.P50 <= 0 || w.P75 < w.P50 || w.P90 < w.P75 || w.P99 < w.P90 || w.Max < w.P99 {
				t.Errorf("wrk says %+v of %s", w, r.Mode)
			}
			if r.CPU <= 0 || r.CPUs.Len() != 2 || (r.Mode == pinning.Shared) != (r.Periods > 0) {
				t.Errorf("%s: %.2f CPU-s on CPUs %v, %d periods", r.Mode, r.CPU, r.CPUs, r.Periods)
			}
		}
	}
	const want = 4 + 2
	if len(runs) != want {
		t.Errorf("%d runs, want %d: %q", len(runs), want, cells)
	}
	theColumnsOfWrk(t, out, string(said))
	nothingLeft(t, c)
}

// theColumnsOfWrk checks that the table and the result have all columns that wrk
// prints, and that no speeds are compared, because wrk ran on the node.
func theColumnsOfWrk(t *testing.T, out, said string) {
	t.Helper()
	for _, head := range []string{"requests/s", "average", "deviation", "max", "50 %", "75 %", "90 %", "99 %"} {
		if !strings.Contains(said, "\n"+head+" ") {
			t.Errorf("the table has no line %q", head)
		}
	}
	if !strings.Contains(said, "do not compare the speeds") {
		t.Error("the table does not say that the client ran on the node")
	}
	data, err := os.ReadFile(filepath.Join(out, "result.json"))
	must(t, err)
	var r pinning.Result
	must(t, json.Unmarshal(data, &r))
	if len(r.Parts) != 2 || !r.Parts[0].Claims || r.Parts[1].Claims {
		t.Errorf("claims: %+v", r.Parts)
	}
	if info, err := os.Stat(filepath.Join(out, "report.html")); err != nil || info.Size() < 5000 || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("page: %v", err)
	}
}
