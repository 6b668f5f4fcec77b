package capability

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// TestAGroupWithItsControllerTells checks a cgroup whose controller is enabled.
// If this cgroup lacks a file, the kernel does not have the file.
func TestAGroupWithItsControllerTells(t *testing.T) {
	root := t.TempDir()
	do(t, os.Mkdir(filepath.Join(root, "be"), 0o755))
	for _, file := range []string{"cgroup.procs", "cgroup.subtree_control"} {
		do(t, os.WriteFile(filepath.Join(root, "be", file), nil, 0o644))
	}
	do(t, os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("cpu\n"), 0o644))
	for name, want := range map[string]node.Verdict{"cpu.bvt_warp_ns": node.No, "memory.low": node.Unknown} {
		if a := lookInGroups(root, name, false); a.Verdict != want {
			t.Errorf("%s: %v, want %s", name, a, want)
		}
	}
	do(t, os.WriteFile(filepath.Join(root, "be/memory.low"), nil, 0o644))
	if a := lookInGroups(root, "memory.low", false); a.Verdict != node.Yes {
		t.Errorf("memory.low, which is there: %v", a)
	}
}

func do(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
