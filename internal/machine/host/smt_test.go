package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/node"
)

// TestSnapshotsFollowSMT switches SMT on and off while a host is open. Each
// snapshot must have the answer for its own topology.
func TestSnapshotsFollowSMT(t *testing.T) {
	fs := proc.FS{Proc: "/proc", Sys: t.TempDir()}
	write := func(file, text string) {
		path := filepath.Join(fs.Sys, "devices/system/cpu", file)
		do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		do(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	siblings := func(online, siblings string) {
		write("online", online)
		for c := range 2 {
			write(fmt.Sprintf("cpu%d/topology/core_cpus_list", c), siblings)
		}
	}
	siblings("0", "0")
	h, err := Open(Options{FS: fs, JournalDir: t.TempDir()})
	do(t, err)
	t.Cleanup(func() { _ = h.Close() })
	check := func(want node.Verdict) node.Snapshot {
		t.Helper()
		s, err := h.Snapshot(t.Context())
		do(t, err)
		if got := s.Capabilities[node.FeatureHardwareSMT]; got.Verdict != want {
			t.Errorf("the snapshot of %d CPUs has %+v, want %s", len(s.Topology.CPUs), got, want)
		}
		if got := h.Capabilities()[node.FeatureHardwareSMT]; got.Verdict != want {
			t.Errorf("the capabilities of %d CPUs have %+v, want %s", len(s.Topology.CPUs), got, want)
		}
		return s
	}
	first := check(node.No)
	siblings("0-1", "0-1")
	check(node.Yes)
	if got := first.Capabilities[node.FeatureHardwareSMT]; got.Verdict != node.No {
		t.Errorf("an earlier snapshot has become %+v", got)
	}
	siblings("0", "0")
	check(node.No)
}
