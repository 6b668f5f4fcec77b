package cgroup

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// putFiles makes files that contain their names.
func putFiles(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, f := range names {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAFullSetRefusesWithoutLosingWhatItKeeps(t *testing.T) {
	dir := putFiles(t, "a", "b", "c")
	s := newOpenSet(2)
	read := func(file string, reserved int, want error) {
		t.Helper()
		text, err := s.Read("group", dir, file, reserved)
		if !errors.Is(err, want) || err == nil && text != file+"\n" {
			t.Errorf("%s reads %q, %v, want %v", file, text, err, want)
		}
	}
	read("a", 1, nil)
	read("b", 1, syscall.EMFILE) // the last descriptor is reserved for others
	read("b", 0, nil)
	read("c", 1, syscall.EMFILE)
	read("a", 1, nil) // it is open
	if s.Len() != 2 || s.MaxOpen() != 2 {
		t.Errorf("%d of %d files are open, want 2 of 2", s.Len(), s.MaxOpen())
	}
	s.Close("group")
	read("c", 0, nil)
	read("missing", 0, syscall.ENOENT)
	if s.CloseAll(); s.Len() != 0 {
		t.Errorf("%d files are open after CloseAll", s.Len())
	}
	if _, err := newOpenSet(0).Read("group", dir, "a", 0); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("a set without room reads with %v", err)
	}
}

// TestFilesInUseStayOpen reads one file in every round, and other files in
// turn, more than may be open. The file that is read in every round must stay
// open, and also one that was read with reserved above 0. The test removes all
// files, so that only open ones can be read.
func TestFilesInUseStayOpen(t *testing.T) {
	others := []string{"a", "b", "c", "d", "e", "f"}
	dir := putFiles(t, append(others, "hot", "setting")...)
	s := newOpenSet(4)
	read := func(group, name string, reserved int) error {
		t.Helper()
		text, err := s.Read(group, dir, name, reserved)
		if err == nil && text != name+"\n" {
			t.Errorf("%s reads %q", name, text)
		}
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(read("of-setting", "setting", 2))
	for range 3 {
		for _, name := range others {
			must(read("of-"+name, name, 0))
			must(read("of-hot", "hot", 0))
			if s.Len() > 4 {
				t.Fatalf("%d files are open, at most 4 may be", s.Len())
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	must(read("of-hot", "hot", 0))
	must(read("of-setting", "setting", 2))
	must(read("of-f", "f", 0))
	if err := read("of-a", "a", 0); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a file that was not read for long reads with %v, want that it was opened again", err)
	}
	must(read("of-f", "f", 0)) // a file that cannot be opened closes none
}

func TestAFileLargerThanTheBufferIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := openPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if _, err := readWhole(fd, make([]byte, 64)); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("it reads with %v", err)
	}
	if n, err := readWhole(fd, make([]byte, 65)); n != 64 || err != nil {
		t.Errorf("with room for it, it reads %d bytes, %v", n, err)
	}
}

func TestWriteReplacesTheContent(t *testing.T) {
	name := filepath.Join(t.TempDir(), "cpu.weight")
	if err := writePath(name, "1\n"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("to a file that does not exist: %v", err)
	}
	if err := os.WriteFile(name, []byte("12345\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writePath(name, "1\n"); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "1\n" {
		t.Errorf("%q, %v", text, err)
	}
}
