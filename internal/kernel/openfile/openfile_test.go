package openfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAFullSetRefusesWithoutLosingWhatItKeeps(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := New(2)
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
	read("c", 0, syscall.EMFILE)
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
}

func TestAFileLargerThanTheBufferIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if _, err := ReadWhole(fd, make([]byte, 64)); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("it reads with %v", err)
	}
	if n, err := ReadWhole(fd, make([]byte, 65)); n != 64 || err != nil {
		t.Errorf("with room for it, it reads %d bytes, %v", n, err)
	}
}
