package cgroup

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNotesStayWithARenamedDirectory runs on tmpfs, which stores such
// attributes as cgroupfs does.
func TestNotesStayWithARenamedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 3000)
	if err := errors.Join(SetNote(dir, "cpu.max", "first"), SetNote(dir, "cpu.max", "second"), SetNote(dir, "made", long), SetNote(dir, "gone", "")); err != nil {
		if errors.Is(err, ErrNoNotes) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	moved := dir + "-moved"
	if err := errors.Join(os.Rename(dir, moved), DropNote(moved, "gone"), DropNote(moved, "gone"), DropNote(dir, "made")); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cpu.max": "second", "made": long}
	if got, err := Notes(moved); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Notes(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the notes at a directory that is gone: %v", err)
	}
}
