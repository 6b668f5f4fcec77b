package note

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
	if err := errors.Join(Set(dir, "cpu.max", "first"), Set(dir, "cpu.max", "second"), Set(dir, "made", long), Set(dir, "gone", "")); err != nil {
		if errors.Is(err, ErrUnsupported) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	moved := dir + "-moved"
	if err := errors.Join(os.Rename(dir, moved), Drop(moved, "gone"), Drop(moved, "gone"), Drop(dir, "made")); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cpu.max": "second", "made": long}
	if got, err := All(moved); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := All(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the notes at a directory that is gone: %v", err)
	}
}
