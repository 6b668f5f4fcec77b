package statedir

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNoSymbolicLinkIsFollowed puts a symbolic link, a pipe and a directory in the
// place of a file. Each is refused by its name, and the target of the link stays.
func TestNoSymbolicLinkIsFollowed(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	odd := map[string]func(path string) error{
		"symbolic link": func(path string) error { return os.Symlink(target, path) },
		"it is a symbolic link": func(path string) error {
			return os.Symlink(filepath.Join(dir, "missing"), path)
		},
		"not a regular file": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"directory":          func(path string) error { return os.Mkdir(path, 0o700) },
	}
	for want, plant := range odd {
		path := filepath.Join(dir, strings.ReplaceAll(want, " ", "-"))
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		for what, flag := range map[string]int{
			"write": os.O_WRONLY | os.O_CREATE | os.O_TRUNC, "append": os.O_WRONLY | os.O_CREATE | os.O_APPEND, "lock": os.O_RDWR | os.O_CREATE,
		} {
			if f, err := Open(path, flag); err == nil {
				_ = f.Close()
				t.Errorf("%s: %s was opened", what, path)
			} else if !strings.Contains(err.Error(), path) {
				t.Errorf("%s: error %q does not name %s", what, err, path)
			}
		}
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("ReadFile of %s: %v", path, err)
		}
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "mine" {
		t.Errorf("the target of the link has %q (%v)", text, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); err == nil {
		t.Error("the missing target of a link was made")
	}
}

// TestWriteFileReplacesALink checks that a value which Tenon saves goes into a file
// in the directory, and not where a link in its place leads.
func TestWriteFileReplacesALink(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "target"), filepath.Join(dir, "state")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(path); err != nil || string(text) != "new" {
		t.Errorf("read %q (%v)", text, err)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("the target of the link was written")
	}
	if err := os.Symlink(target, path+".next"); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("newer")); err == nil || !strings.Contains(err.Error(), "state.next") {
		t.Errorf("a link in the place of the next file: %v", err)
	}
}

func TestADirectoryThatOthersCanWriteIsRefused(t *testing.T) {
	tests := map[string]struct {
		mode os.FileMode
		gid  int // 0: that of this process
		want string
	}{
		"own":                       {0o700, 0, ""},
		"readable for all":          {0o755, 0, ""},
		"writable for all":          {0o707, 0, "every user can write"},
		"writable for all, sticky":  {0o777 | os.ModeSticky, 0, "every user can write"},
		"writable for another":      {0o770, 65534, "the group 65534 can write"},
		"writable for its own":      {0o770, 0, ""},
		"readable for other groups": {0o750, 65534, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.gid != 0 {
				if os.Geteuid() != 0 {
					t.Skip("only root can give a directory to another group")
				}
				if err := os.Chown(dir, -1, tc.gid); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, tc.mode); err != nil {
				t.Fatal(err)
			}
			err := Make(dir)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("Make: %v, want %q", err, tc.want)
			}
		})
	}
	if err := Check(filepath.Join(t.TempDir(), "missing")); err != nil {
		t.Errorf("a directory that does not exist: %v", err)
	}
}

// TestAFileWithAnotherNameIsRefused puts a hard link in the place of a file. What
// the other name has must stay, also if the file is opened to be truncated.
func TestAFileWithAnotherNameIsRefused(t *testing.T) {
	dir := t.TempDir()
	target, path := filepath.Join(dir, "target"), filepath.Join(dir, "state")
	if err := os.WriteFile(target, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".next"} {
		if err := os.Link(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, flag := range []int{os.O_RDONLY, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_TRUNC} {
		if f, err := Open(path, flag); err == nil {
			_ = f.Close()
			t.Errorf("flags %#x: it was opened", flag)
		} else if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "hard links") {
			t.Errorf("flags %#x: %v", flag, err)
		}
	}
	if err := WriteFile(path, []byte("new")); err == nil {
		t.Error("the next file was written through a hard link")
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "mine" {
		t.Errorf("the other name has %q (%v)", text, err)
	}
}

func TestAFileOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	path := filepath.Join(t.TempDir(), "state")
	for range 2 { // WriteFile leaves a file that it can replace
		if err := WriteFile(path, []byte("long text")); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Open(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the file was not truncated (%v)", err)
	}
	_ = f.Close()
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "user 65534") {
		t.Errorf("ReadFile: %v", err)
	}
	if f, err := Open(path, os.O_RDWR|os.O_CREATE); err == nil {
		_ = f.Close()
		t.Error("it was opened")
	}
}
