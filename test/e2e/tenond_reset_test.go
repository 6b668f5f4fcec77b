package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/agent/record"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

// TestTenondKeepsABoundThatSystemdResets writes the quota of a slice as systemd does when
// another setting of the slice is set. The quota must stay the bound. From the third time
// on, the kernel wakes tenond, whose period is long.
func TestTenondKeepsABoundThatSystemdResets(t *testing.T) {
	const slice = "batch.slice"
	s := newSite(t, "reset")
	s.configure(strings.NewReplacer("period: 100ms", "period: 3s", "ROOT/batch/*", "ROOT/"+slice+"/*").Replace(generous))
	s.run(service, "sleep", "600")
	s.run(slice+"/job.scope", "sh", "-c", "while :; do :; done")
	s.before = s.dump(t)
	t.Cleanup(s.disarm)
	d := s.tenond()
	path := string(s.path(slice))
	bounded := func() bool {
		v, err := s.tree.ReadCPUMax(path)
		if err != nil {
			t.Fatal(err)
		}
		return v.Quota != cgroup.NoQuota
	}
	eventually(t, "best-effort work is bounded", bounded)
	for n := range 8 {
		if err := s.tree.WriteCPUMax(path, cgroup.CPUMax{Quota: cgroup.NoQuota, Period: node.DefaultPeriod}); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		eventually(t, "the bound is back", bounded)
		t.Logf("reset %d was undone after %v", n+1, time.Since(at).Round(time.Millisecond))
	}
	text, err := os.ReadFile(filepath.Join(s.state, record.AuditFile))
	if err != nil {
		t.Fatal(err)
	}
	woken := 0
	for line := range strings.Lines(string(text)) {
		var w record.Write
		if json.Unmarshal([]byte(line), &w) == nil && w.Cgroup == s.path(slice) && strings.HasPrefix(w.Woken, "overwrite") {
			woken++
		}
	}
	if woken < 4 {
		t.Errorf("%d of 8 resets woke tenond, want all but the first ones", woken)
	}
	if said := d.said(); strings.Contains(said, "keeps writing") {
		t.Errorf("tenond says that another program keeps writing:\n%s", said)
	}
	d.stop()
	s.restore()
}
