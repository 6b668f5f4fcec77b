package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tenon.sh/tenon/internal/model/unit"
)

// TestReclaimWritesAnAmount checks the text of the write, and what is no answer of the
// kernel to it. The kernel itself is asked in TestV2ReclaimAnswers.
func TestReclaimWritesAnAmount(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/self/mountinfo", "31 24 0:28 / "+root+"/v2 rw - cgroup2 cgroup2 rw\n")
	write("v2/cgroup.controllers", "cpu memory\n")
	write("v2/job/memory.stat", "anon 0\npgsteal 7\n")
	write("v2/job/memory.reclaim", "")
	write("v2/old/memory.stat", "anon 0\npgsteal 7\n")
	write("v2/dark/memory.stat", "anon 0\n")
	write("v2/dark/memory.reclaim", "")
	tree, err := Detect(filepath.Join(root, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Reclaim(t.Context(), tree, "job", unit.Bytes(3<<20)); got != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if text, err := os.ReadFile(filepath.Join(root, "v2/job/memory.reclaim")); string(text) != "3145728" || err != nil {
		t.Errorf("wrote %q, %v", text, err)
	}
	if _, err := Reclaim(t.Context(), tree, "old", 1<<20); !errors.Is(err, ErrUnsupported) {
		t.Errorf("on a kernel without the file: %v", err)
	}
	if _, err := Reclaim(t.Context(), tree, "none", 1<<20); !errors.Is(err, ErrGone) {
		t.Errorf("in a group that is gone: %v", err)
	}
	if _, err := Reclaim(t.Context(), tree, "dark", 1<<20); err == nil {
		t.Error("without pgsteal, nothing says what was reclaimed")
	}
	if text, err := os.ReadFile(filepath.Join(root, "v2/dark/memory.reclaim")); len(text) > 0 || err != nil {
		t.Errorf("wrote %q, %v", text, err)
	}
	write("proc/self/mountinfo", "31 24 0:28 / "+root+"/v1 rw - cgroup cgroup rw,memory\n")
	write("v1/job/memory.force_empty", "")
	if tree, err = Detect(filepath.Join(root, "proc")); err != nil {
		t.Fatal(err)
	}
	if _, err := Reclaim(t.Context(), tree, "job", 1<<20); !errors.Is(err, ErrUnsupported) {
		t.Errorf("on v1: %v", err)
	}
}
